"""Every table and figure runs; with untrained agents in place of the zoo's, and few episodes."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from PIL import Image

from sensorium import recipes
from sensorium.errors import ConfigError, UnknownNameError
from sensorium.policies import AttentionAgentConfig, VisionAttentionNeuronConfig, to_vector
from sensorium.reproduce import run as reproduce
from sensorium.serialisation import save_pytree
from tests.probes import save_untrained


@pytest.fixture
def small_zoo(tmp_path, monkeypatch):
    zoo = tmp_path / "zoo"
    for name in ("cartpole-fnn", "cartpole-pi", "cartpole-pi-reshuffle", "cartpole-nla"):
        recipe = recipes.find(name)
        save_untrained(zoo / f"{name}.safetensors", recipe)
    monkeypatch.setenv("SENSORIUM_ZOO", str(zoo))
    monkeypatch.setattr("sensorium.envs.CartPoleSwingUpHarder.max_steps", 60)


def run(table, tmp_path, episodes=4):
    path = tmp_path / f"{table}.json"
    reproduce.run(table, episodes=episodes, seed=0, out=tmp_path, json=str(path))
    return json.loads(path.read_text())


def test_table_2_has_a_row_for_all_that_can_be_asked(small_zoo, tmp_path, capsys):
    rows = run("table-2", tmp_path)
    asked = {(row["agent"], row["perturbation"]) for row in rows}
    perturbations = {"plain", "shuffled", "doubled", "+5 noise channels"}
    assert asked == {("cartpole-fnn", s) for s in ("plain", "shuffled")} | {
        (name, s) for name in ("cartpole-pi", "cartpole-nla") for s in perturbations
    }
    paper = {row["paper"] for row in rows if row["agent"] == "cartpole-pi"}
    assert any(cell.startswith("472") for cell in paper)
    shuffled = next(
        row for row in rows if row["agent"] == "cartpole-pi" and row["perturbation"] == "shuffled"
    )
    assert abs(shuffled["difference"]) < 0.05
    assert "cartpole-pi" in capsys.readouterr().out


def test_table_6_and_the_table_of_nla(small_zoo, tmp_path):
    perturbations = {row["perturbation"] for row in run("table-6", tmp_path)}
    assert perturbations >= {"reshuffled every 25", "reshuffled every 100"}
    assert {row["agent"] for row in run("nla-table-2", tmp_path)} == {"cartpole-pi", "cartpole-nla"}


def test_table_3_reads_the_sensors_out_of_the_code(small_zoo, tmp_path):
    rows = run("table-3", tmp_path)
    assert {row["agent"] for row in rows} == {"cartpole-pi", "cartpole-nla"}
    for row in rows:
        assert len(row["r2"]) == 5
    assert [row["trained"] for row in rows] == [True, False] * 2
    for row in rows:
        assert all(value <= 1 for value in row["r2"].values())


def test_unknown_table(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'figure-4'"):
        reproduce.run("figure4", episodes=1, seed=0, out=tmp_path, json=None)


@pytest.mark.parametrize(
    ("table", "papers"), [("table-2", 1000), ("table-5", 100), ("table-4", 100)]
)
@pytest.mark.parametrize("said", [None, 7])
def test_as_many_episodes_as_the_papers_have(table, papers, said, tmp_path, monkeypatch):
    asked = []

    def rebuild(episodes, seed, out):
        asked.append((episodes, seed, out))
        return {}, None

    tables = reproduce.TABLES
    monkeypatch.setitem(tables, table, tables[table]._replace(rebuild=rebuild))
    reproduce.run(table, episodes=said, seed=3, out=tmp_path, json=str(tmp_path / "a.json"))
    assert asked == [(said or papers, 3, tmp_path)]


@pytest.fixture
def ant_zoo(tmp_path, monkeypatch):
    """Untrained agents under the ant's names, in a world that is soon over."""
    env = "gym:tests.host_worlds:Walk-v0"
    for name in ("ant-fnn", "ant-pi", "ant-pi-large", "ant-motors"):
        recipe = dataclasses.replace(recipes.find(name), env=env)
        save_untrained(tmp_path / "zoo" / f"{name}.safetensors", recipe)
    monkeypatch.setenv("SENSORIUM_ZOO", str(tmp_path / "zoo"))
    monkeypatch.setattr("sensorium.reproduce.ant.ENV", env)


def test_tables_of_the_ant(ant_zoo, tmp_path):
    rows = run("table-4", tmp_path)
    agents = ("ant-fnn", "ant-pi", "ant-pi-large")
    assert [(row["agent"], row["perturbation"]) for row in rows] == [
        (agent, perturbation) for agent in agents for perturbation in ("plain", "shuffled")
    ]
    assert {row["env"] for row in rows} == {"gym:tests.host_worlds:Walk-v0"}
    papers = {row["agent"]: row["paper"] for row in rows if row["perturbation"] == "shuffled"}
    assert papers == {
        "ant-fnn": "232 ± 112",
        "ant-pi": "2034 ± 948",
        "ant-pi-large": "2579 ± 457",
    }
    rows = run("table-6-ant", tmp_path)
    column = ["2053 ± 225", "2319 ± 188", "2406 ± 178", "2493 ± 105", "2548 ± 87"]
    assert [row["paper"] for row in rows] == column * 2
    assert {row["agent"] for row in run("nla-table-3", tmp_path)} == {"ant-pi"}
    rewired = "motors rewired with signs"
    assert [(row["agent"], row["perturbation"]) for row in run("motors-ant", tmp_path)] == [
        ("ant-motors", perturbation)
        for perturbation in (
            "plain",
            f"shuffled + {rewired}",
            f"shuffled + {rewired} every 500",
            f"shuffled + {rewired} every 100",
        )
    ]


def test_a_table_in_a_world_on_the_host_goes_on_where_it_was(ant_zoo, tmp_path, capsys):
    before = run("table-4", tmp_path)
    kept = sorted((tmp_path / "scores").iterdir())
    assert len(kept) == len(before)
    assert json.loads(kept[0].read_text())["returns"] in [row["returns"] for row in before]
    kept[0].unlink()  # as if interrupted there
    kept[1].write_bytes(b"[")
    again = run("table-4", tmp_path)
    assert capsys.readouterr().err.count("As measured before") == len(before) - 2
    for name in ("agent", "perturbation", "returns", "mean", "iqm_ci95"):
        assert [row[name] for row in again] == [row[name] for row in before]
    assert sum(a["seconds"] != b["seconds"] for a, b in zip(again, before, strict=True)) == 2
    # Other weights under the same name are another agent
    recipe = dataclasses.replace(recipes.find("ant-pi"), env="gym:tests.host_worlds:Walk-v0")
    other = recipe.draw_policy(jax.random.key(1))
    save_pytree(tmp_path / "zoo/ant-pi.safetensors", other, {"recipe": recipe.to_json()})
    run("table-4", tmp_path)
    assert len(list((tmp_path / "scores").iterdir())) == len(before) + 2


def test_a_table_of_agents_that_nobody_trained(small_zoo, tmp_path):
    with pytest.raises(ConfigError, match=r"None of ant-fnn, .* is in the zoo"):
        reproduce.run("table-4", episodes=1, seed=0, out=tmp_path, json=None)


@pytest.fixture
def short_races(tmp_path, monkeypatch):
    """The authors' three drivers with random weights, and races of ten steps."""
    pytest.importorskip("Box2D", reason="CarRacing-v3 needs the extra `racing`")
    configs = {
        "carracing_attention_agent": AttentionAgentConfig(),
        "carracing_attention_agent_2020": AttentionAgentConfig(),
        "carracing_pi": VisionAttentionNeuronConfig(),
    }
    for name, config in configs.items():
        policy = config.build((96, 96, 3), 3, jax.random.key(0))
        np.savez(tmp_path / f"{name}.npz", params=np.asarray(to_vector(policy)))
    monkeypatch.setenv("SENSORIUM_PUBLISHED", str(tmp_path))
    monkeypatch.setattr("sensorium.envs.CarRacing.max_steps", 10)
    monkeypatch.setattr("sensorium.bridges.from_gymnasium.HostWorld.max_steps", 10)
    return tmp_path


def test_the_authors_drivers_are_scored_in_both_worlds(short_races):
    rows = run("racing-authors", short_races, episodes=2)
    by_world = [(row["env"], row["perturbation"], row["paper"]) for row in rows]
    worlds = ("CarRacing", "gym:CarRacing-v3")
    papers = (("plain", "895.6 ± 60.8"), ("shuffled", "846.6 ± 94.2"))
    assert by_world == [(world, *paper) for world in worlds for paper in papers]
    for row in rows:  # what is touched at the start is paid at once, and ten steps cost 1
        assert all(-1.1 < value < 100 for value in row["returns"])


def test_drivers_are_scored_on_what_nobody_told_them_of(short_races, small_zoo, monkeypatch):
    rows = run("aa-table-3", short_races, episodes=2)
    assert [(row["agent"], row["paper"]) for row in rows] == [
        ("carracing_attention_agent_2020", "914 ± 15"),
        ("carracing_attention_agent", "914 ± 15"),
    ]
    images = short_races / "images"
    images.mkdir()
    for name in ("kof.jpg", "red.png"):  # of the paper's, by its name, and another
        Image.new("RGB", (8, 8), (200, 30, 30)).save(images / name)
    monkeypatch.setenv("SENSORIUM_BACKGROUNDS", str(images))
    rows = run("table-5", short_races, episodes=2)
    assert [(row["perturbation"], row["paper"]) for row in rows] == [
        ("shuffled", "801 ± 147"),
        ("background kof.jpg + shuffled", "646 ± 189"),
        ("background red.png + shuffled", "-"),
    ]


@pytest.fixture
def drives(tmp_path, small_zoo, monkeypatch):
    """Races in a tiny world, by agents of which only those of `into_the_zoo` are there."""
    monkeypatch.setattr("sensorium.reproduce.car_racing.THEIRS", "gym:tests.host_worlds:Drive-v0")
    monkeypatch.delenv("SENSORIUM_PUBLISHED", raising=False)
    return tmp_path


def test_the_parameters_of_attention_agent(drives, capsys):
    into_the_zoo(drives, "carracing-attention-agent")
    (row,) = run("aa-table-2", drives)
    assert (row["attention"], row["controller"]) == (1184, 2483)
    assert "1,184" in capsys.readouterr().out.partition("carracing-attention-agent")[0]


def into_the_zoo(folder, *names):
    for name in names:
        recipe = recipes.find(name)
        path = folder / "zoo" / f"{name}.safetensors"
        save_untrained(path, recipe)


def test_what_nobody_told_them_of(drives):
    into_the_zoo(drives, "carracing-attention-agent", "carracing-ppo")
    rows = run("aa-table-4", drives)
    assert [(row["agent"], row["perturbation"]) for row in rows] == [
        (agent, perturbation)
        for agent in ("carracing-attention-agent", "carracing-ppo")
        for perturbation in ("colour", "bars", "blob")
    ]
    assert [rows[1]["paper"], rows[4]["paper"]] == ["900 ± 35", "615 ± 217"]


def test_an_agent_of_noise_stands_beside_that_of_its_size(drives):
    into_the_zoo(drives, "carracing-attention-agent", "carracing-noise-10")
    rows = run("aa-noise", drives)
    assert [(row["agent"], row["paper"]) for row in rows] == [
        ("carracing-attention-agent", "-58 ± 12"),
        ("carracing-noise-10", "577 ± 243"),
    ]
    assert {row["perturbation"] for row in rows} == {"background noise"}


def test_forms_of_nonlinear_attention_drive_plain_and_shuffled(drives, capsys):
    into_the_zoo(drives, "carracing-nla")
    rows = run("nla-table-4", drives)
    assert [(row["agent"], row["perturbation"]) for row in rows] == [
        ("carracing-nla", perturbation) for perturbation in ("plain", "shuffled")
    ]
    # An untrained agent that minds no order: the actions are the same, and so are the races
    assert abs(rows[1]["difference"]) < 0.05
    assert "not in the zoo: carracing-pi." in " ".join(capsys.readouterr().out.split())


def test_table_5_has_those_of_the_other_agents_that_were_trained(
    short_races, small_zoo, monkeypatch, capsys
):
    monkeypatch.delenv("SENSORIUM_PUBLISHED")
    images = short_races / "images"
    images.mkdir()
    Image.new("RGB", (8, 8), (200, 30, 30)).save(images / "red.png")
    monkeypatch.setenv("SENSORIUM_BACKGROUNDS", str(images))
    with pytest.raises(ConfigError, match="None of carracing-pi, carracing-pi-backgrounds is"):
        run("table-5", short_races, episodes=2)
    recipe = recipes.find("carracing-netrand")
    path = short_races / "zoo" / "carracing-netrand.safetensors"
    save_untrained(path, recipe)
    rows = run("table-5", short_races, episodes=2)
    assert [(row["agent"], row["perturbation"], row["paper"]) for row in rows] == [
        ("carracing-netrand", "plain", "480 ± 144"),
        ("carracing-netrand", "background red.png", "-"),
    ]
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "not in the zoo: carracing-pi, carracing-pi-backgrounds, carracing-attention-agent, "
        in shown
    )
    assert "carracing-cnn" in shown
