"""How much of MuJoCo's own speed is left when an agent acts in bodies with legs, on one core.

    taskset -c 0 python benchmarks/walker.py      # 4 legs, 64 episodes at a time

In turns: the host engine runs episodes of an agent with random weights, and MuJoCo alone takes the very same
actions from the same starts, one episode after the other. Compiling is not counted. Seconds are those of the
processor; other work beside it still costs, since it empties the caches.
"""

import statistics
import time
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console


def main(
    legs: int = 4,
    student: str = "ant-fnn",
    episodes: int = 64,
    lanes: int = 64,
    steps: int = 200,
    rounds: int = 5,
    json_file: Path | None = None,
) -> None:
    """Measure.

    Args:
        legs: Of the body.
        student: The recipe whose architecture the agent has.
        episodes: In a round.
        lanes: Episodes that run at a time.
        steps: Of an episode, at most.
        rounds: How often both are measured, in turns.
        json_file: Write figures here as well.
    """
    import equinox as eqx
    import jax
    import mujoco

    from sensorium import recipes
    from sensorium.bridges.walker import FRAME_SKIP, mjcf
    from sensorium.gymnasium_ids import WALKER
    from sensorium.policies import as_population
    from sensorium.rollout import HostEngine, make_world, this_machine
    from sensorium.rollout.acting import PolicyActor
    from sensorium.rollout.host import seeds_of
    from sensorium.serialisation import write_json

    world = make_world(f"gym:{WALKER}?legs={legs}&max_episode_steps={steps}")
    drawn = recipes.find(student).policy.build(
        world.num_sensors, world.num_actions, jax.random.key(1)
    )
    weights, others = eqx.partition(drawn, eqx.is_inexact_array)
    # Smaller ones, of an agent that moves its legs and stays on them: all lanes are in use then
    policy = eqx.combine(jax.tree.map(lambda leaf: 0.5 * leaf, weights), others)
    keys = jax.random.split(jax.random.key(0), episodes)
    model = mujoco.MjModel.from_xml_string(mjcf(legs))
    data = mujoco.MjData(model)
    env = world.opener()()
    starts = []
    for seed in seeds_of(keys):
        env.reset(seed=int(seed))
        state = env.unwrapped.state
        starts.append((state.qpos.copy(), state.qvel.copy()))

    def alone() -> float:
        began = time.process_time()
        for (places, speeds), actions, length in zip(
            starts, seen.actions, seen.lengths, strict=True
        ):
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = places, speeds
            for action in actions[:length]:
                data.ctrl[:] = action
                mujoco.mj_step(model, data, FRAME_SKIP)
        return float(seen.lengths.sum()) / (time.process_time() - began)

    figures = []
    with HostEngine(world, workers=0, lanes=lanes) as engine:
        seen = engine.transcribe(  # and compile
            lambda: PolicyActor(as_population(policy), world, keys), seeds_of(keys)
        )
        engine.run_episodes(policy, keys)
        for _ in range(rounds):
            bare, began = alone(), time.process_time()
            lengths = np.asarray(engine.run_episodes(policy, keys).length)
            ours = float(lengths.sum()) / (time.process_time() - began)
            figures.append({"engine": ours, "mujoco": bare, "share": ours / bare})
    result = {
        "legs": legs,
        "student": student,
        "machine": this_machine(),
        "mujoco": mujoco.__version__,
        "episodes": episodes,
        "steps": int(seen.lengths.sum()),
        "rounds": figures,
        "share": statistics.median(row["share"] for row in figures),
    }
    if json_file:
        write_json(json_file, result)
    console = Console(highlight=False)
    for row in figures:
        console.print(f"steps/s: engine {row['engine']:,.0f}; MuJoCo alone {row['mujoco']:,.0f}")
    console.print(f"steps {result['steps']:,}; median share: {result['share']:.0%}")


if __name__ == "__main__":
    tyro.cli(main)
