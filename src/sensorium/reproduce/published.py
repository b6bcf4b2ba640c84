"""Every published number that a reproduction is held against: paper, table, row.

AN is Tang & Ha 2021, NLA is Muzaffar et al. Scores are mean ± standard deviation over episodes.
"""

AN_TABLE_2 = {
    # 1,000 episodes: plain, shuffled, doubled, with 5 noise channels
    "cartpole-fnn": {"plain": "593 ± 443", "shuffled": "38 ± 91"},
    "cartpole-pi": {
        "plain": "472 ± 426",
        "shuffled": "471 ± 426",
        "doubled": "471 ± 425",
        "+5 noise channels": "461 ± 410",
    },
}
"""CartPole under perturbed senses (AN Table 2)."""

AN_TABLE_6 = {"reshuffled every 25": "107", "reshuffled every 100": "242"}
"""CartPole's column of the reshuffling study (AN Table 6)."""
