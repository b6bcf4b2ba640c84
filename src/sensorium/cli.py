"""The command line: one short function a command.

sensorium train cartpole-pi        sensorium eval cartpole-pi --shuffle --noise-channels 5
sensorium recipe ant-pi            sensorium convert model.zip --env gym:Pendulum-v1
sensorium reproduce table-2        sensorium show cartpole-pi --video out.mp4
sensorium demo                     sensorium export cartpole-pi --onnx agent.onnx
sensorium bench cartpole           sensorium zoo
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from sensorium import flags
from sensorium.errors import ConfigError, MissingExtraError, SensoriumError, needs
from sensorium.flags import NO_FLAGS, Count, File, Flag, Name, Output, PerturbationFlags, Time
from sensorium.registry import import_plugins
from sensorium.terminal import reserved_output, say, spell_out, whole_output, with_json


def train(
    recipe: Positional[Name] = None,
    *,
    set: UseAppendAction[tuple[str, ...]] = (),
    expert: Name = None,
    vecnormalize: Name = None,
    start: Name = None,
    env: Name = None,
    seed: Count = None,
    from_scratch: Flag = False,
    run_dir: File = None,
    resume: File = None,
    engine: Literal["auto", "ray", "jax"] = "auto",
    address: Name = None,
    processes: Count = None,
    process: Count = None,
    workers: Count = None,
    quiet: Flag = False,
) -> None:
    """Train an agent stage by stage, or go on with a run.

    Args:
        recipe: A name (`sensorium zoo` lists them), a JSON file (`sensorium recipe NAME` prints one), a run,
            or module:NAME.
        set: A setting, as in --set generations=30 or --set ppo.num_epochs=4; may be given several times.
        expert: Instead of the recipe's experts: an agent, a run or a file, of Stable-Baselines3 too.
        vecnormalize: Statistics that such a model was trained behind; those beside it if not said, or `none`.
        start: An agent of the zoo, a run or a file to start from.
        env: Another world; `gym:` and an id for any of Gymnasium.
        seed: Any whole number from 0 on; decides everything.
        from_scratch: Train the experts and starts too, in folders beside the run.
        run_dir: Where the run is kept; runs/NAME by default.
        resume: A run directory to go on with, to the same end as if it had never stopped.
        engine: Where episodes run: this machine, a Ray cluster, or all processes started with this command.
        address: Of the head of the Ray cluster (`auto`: this machine's; none starts one), or of process 0.
        processes: How many are started, with `--engine jax`.
        process: Which of them this is, from 0.
        workers: Processes that simulate a world on the host.
        quiet: Show no progress.
    """
    from sensorium import recipes, zoo
    from sensorium.rollout import EngineConfig, use_all_cores

    use_all_cores()
    options: dict[str, Any] = dict(quiet=quiet)
    options |= dict(engine=EngineConfig(engine, address, workers, processes, process))
    if resume is not None:
        asked = (recipe, run_dir, expert, vecnormalize, start, env, seed)
        if set or from_scratch or any(each is not None for each in asked):
            raise ConfigError("--resume goes on as the run began: it takes no recipe or settings.")
        zoo.resume(resume, **options)
        directory = resume
    elif recipe is None:
        raise ConfigError("Name a recipe to train, or a run to --resume.")
    else:
        settings = dict(expert=expert, vecnormalize=vecnormalize, start=start, env=env)
        chosen = recipes.adapt(recipes.find(recipe), set, **settings, seed=seed)
        directory = run_dir or Path("runs") / chosen.name
        zoo.train(chosen, directory, from_scratch=from_scratch, **options)
    Console(stderr=True).print(f"Trained; see `sensorium eval {directory}`.", soft_wrap=True)


def convert(
    model: Positional[flags.Needed],
    *,
    env: str,
    vecnormalize: str = "",
    budget: Time = None,
    to: Literal["standard", "wide"] = "standard",
    policy: Name = None,
    then: Literal["ppo"] | None = None,
    set: UseAppendAction[tuple[str, ...]] = (),
    run_dir: File = None,
    seed: int = 0,
    episodes: Count = None,
    quiet: Flag = False,
    json: Output = None,
) -> None:
    """Train an agent that does what a trained policy does, with its sensors in any order.

    Args:
        model: A zip of Stable-Baselines3 or sb3-contrib, module:NAME of a function of an observation or of
            a PyTorch module, or an agent of ours.
        env: Where it acts: `gym:` and the id of a Gymnasium environment.
        vecnormalize: Statistics that a model was trained behind; those beside it if not said, or `none`.
        budget: How long to train at most, as in 90s, 5m or 1h.
        to: How large the agent is.
        policy: Another kind of agent: the name of the config of a policy, such as DeepSetsConfig.
        then: Go on by PPO on the reward, where imitation alone falls short.
        set: A setting of the recipe, as of `train`.
        run_dir: Where the run is kept; runs/ENV-twin by default. One that was interrupted goes on.
        seed: Any whole number from 0 on; decides everything.
        episodes: Of each score at the end; 100 if not said, 20 of images.
        quiet: Show no progress.
        json: Write figures as JSON to this file; - for standard output.
    """
    from sensorium.evaluation import report
    from sensorium.rollout import use_all_cores
    from sensorium.zoo import conversion

    use_all_cores()
    student = to if policy is None else conversion.student_of(policy)
    options: dict[str, Any] = dict(vecnormalize=vecnormalize, settings=set, seed=seed, quiet=quiet)
    options |= dict(run_dir=run_dir, budget=flags.seconds_of(budget), episodes=episodes)
    comparison = conversion.run(model, env, student=student, then_ppo=then == "ppo", **options)
    with suppress(MissingExtraError), needs("draw", "The figure"):
        from sensorium.analysis import figures

        figures.comparison(comparison.directory / "comparison.png", comparison)
    report.console_for(json).print(comparison.table())
    report.write(comparison.to_json(), json)
    Console(stderr=True, highlight=False).print(comparison.verdict(), soft_wrap=True, markup=False)


def recipe(recipe: Positional[flags.Needed], *, set: UseAppendAction[tuple[str, ...]] = ()) -> None:
    """Print a recipe as JSON, to be edited and trained.

    Args:
        recipe: A name, a JSON file, a run, or module:NAME.
        set: A setting, as of `train`.
    """
    from sensorium import recipes
    from sensorium.evaluation import report

    report.write(recipes.adapt(recipes.find(recipe), set).to_json(), "-")


def evaluate(
    agent: Positional[flags.Needed],
    *,
    episodes: Count = None,
    seed: int = 0,
    perturbation: OmitArgPrefixes[PerturbationFlags] = NO_FLAGS,
    env: Name = None,
    suite: Flag = False,
    engine: Literal["auto", "ray"] = "auto",
    address: Name = None,
    workers: Count = None,
    json: Output = None,
) -> None:
    """Score an agent under a perturbation.

    Args:
        agent: A name of the zoo, a run directory, or a file.
        episodes: How many, each from a start of its own; 1,000, or 100 in CarRacing and on the host.
        seed: Any whole number from 0 on; decides the starts and all noise.
        perturbation: What happens to the observations.
        env: Another world than that of the agent's recipe; `gym:` and an id for any of Gymnasium.
        suite: Plain, shuffled, doubled and with 5 noise channels, beside the paper's scores.
        engine: Where episodes run: `auto` is this machine, `ray` a cluster.
        address: Of the head of the Ray cluster; `auto` for that of this machine, none to start one.
        workers: Processes that simulate a world on the host.
        json: Write figures as JSON to this file; - for standard output.
    """
    from sensorium.evaluation import report
    from sensorium.reproduce.counterparts import beside
    from sensorium.rollout import EngineConfig, make_world, use_all_cores
    from sensorium.zoo import load

    use_all_cores()
    loaded = load(agent)
    world = loaded.recipe.env if env is None else env
    asked = perturbation.build(make_world(world).observation_spec)
    perturbations = report.SUITE if suite else (asked,)
    paper = beside(loaded.name) if world == loaded.recipe.env else None
    episodes = make_world(world).scored_episodes if episodes is None else episodes
    where = EngineConfig(engine, address, workers)
    report.score(
        loaded.policy, loaded.name, world, perturbations, episodes, seed, json, paper, where
    )


def reproduce(
    table: Positional[flags.Needed],
    *,
    episodes: Count = None,
    seed: int = 0,
    out: Path = Path("reproduced"),
    json: Output = None,
) -> None:
    """Rebuild a table or figure of a paper, ours beside theirs.

    Args:
        table: One of table-2, table-3, table-4, table-5, table-6, table-6-ant, table-6-racing,
            table-6-pong, figure-4, figure-5, figure-6, ant-authors, racing-authors, aa-table-2, aa-table-3,
            aa-table-4, aa-table-4-takecover, aa-noise, takecover-attention, takecover-k, nla-table-2,
            nla-table-3, nla-table-4, nla-table-5, nla-curves, nla-curves-pong, pong, pong-decoder, motors,
            motors-ant, motors-seeds, recovery, scaling.
        episodes: Episodes of each score; as many as in the papers by default: 1,000, or 100 on the ant, of
            CarRacing and of Pong (10 in figure-5).
        seed: Any whole number from 0 on; decides the starts and all noise.
        out: Folder for figures, and for scores of CarRacing and the ant, which take minutes each: a table
            that was interrupted goes on from there. Delete them to measure again.
        json: Write figures as JSON to this file; - for standard output.
    """
    from sensorium.reproduce import run as reproductions
    from sensorium.rollout import use_all_cores

    use_all_cores()
    reproductions.run(table, episodes=episodes, seed=seed, out=out, json=json)


def show(
    agent: Positional[flags.Needed],
    *,
    video: File = None,
    figure: File = None,
    steps: Count = None,
    seed: int = 0,
    perturbation: OmitArgPrefixes[PerturbationFlags] = NO_FLAGS,
    plain: Flag = False,
    backgrounds: Name = None,
) -> None:
    """Show an episode of an agent: the world, what arrives, attention and code.

    Args:
        agent: A name of the zoo, a run directory, or a file.
        video: Write an mp4 here.
        figure: Write the whole episode as one PNG here; of CarRacing, how important its patches are.
        steps: How many steps of the episode to show; 500 by default, or all that there are.
        seed: Any whole number from 0 on; decides the start and all noise.
        perturbation: What happens to the observations; by default sensors are reshuffled every 250 steps, or
            motors rewired in the middle, of an agent that finds out what they do.
        plain: Perturb nothing.
        backgrounds: An episode each, of `scenes` or a folder of images and videos; files are folders then.
    """
    from sensorium.analysis import show as analysis_show
    from sensorium.zoo import load

    analysis_show.show(
        load(agent),
        video=video,
        figure=figure,
        steps=steps,
        seed=seed,
        flags=perturbation,
        plain=plain,
        backgrounds=backgrounds,
    )


def demo(
    agent: Positional[Name] = None,
    *,
    port: int = 8700,
    host: str = "127.0.0.1",
    allow_remote: Flag = False,
    open: Flag = True,
    export: File = None,
) -> None:
    """Open a page to shuffle, silence and add sensors of an agent while it acts.

    Args:
        agent: The agent to begin with: a name of the zoo, a run directory, or a file.
        port: Of the page; 0 for any that is free.
        host: The address to serve on.
        allow_remote: Serve on an address that other machines can reach.
        open: Do not open the page in a browser.
        export: Write a folder with cart-pole, agents and page, which needs no Python; serve nothing.
    """
    if export is not None:
        from sensorium.demo import static_export

        page = static_export.export(export, agent or "cartpole-pi")
        return say(f"wrote {page}; open it in a browser.")
    with needs("demo", "The demo"):
        from sensorium.demo import server

    server.serve(agent, server.ServerConfig(host, port, allow_remote), open_page=open)


def bench(
    what: Positional[flags.Needed] = "cartpole",
    *,
    population: int = 256,
    rollouts: int = 16,
    rounds: int = 5,
    json: Output = None,
) -> None:
    """Measure how many steps of the world a second a population takes.

    Args:
        what: The world; `cartpole`.
        population: Individuals.
        rollouts: Episodes of each.
        rounds: Measurements; the median is reported.
        json: Write figures as JSON to this file; - for standard output.
    """
    from sensorium.rollout import use_all_cores

    use_all_cores()
    from sensorium.evaluation import bench as measure

    measure.bench(what, population=population, rollouts=rollouts, rounds=rounds, json=json)


def zoo(agent: Positional[Name] = None, *, json: Output = None) -> None:
    """List the trained agents and the recipes, or show the card of one agent.

    Args:
        agent: An agent whose card to show; all of them in a table by default.
        json: Write figures as JSON to this file; - for standard output.
    """
    from sensorium.zoo import card

    card.show_card(agent, json) if agent else card.show_all(json)


def export(agent: Positional[flags.Needed], *, onnx: Path) -> None:
    """Write one step of an agent for other programs, checked against the agent itself.

    Args:
        agent: A name of the zoo, a run directory, or a file.
        onnx: The ONNX file to write.
    """
    from sensorium.zoo import load
    from sensorium.zoo import onnx as to_onnx

    written = to_onnx.export(load(agent), onnx)
    Console(stderr=True, highlight=False).print(str(written), markup=False, soft_wrap=True)


_CONFIG = (tyro.conf.FlagCreatePairsOff,)  # --shuffle, and no --no-shuffle
_PLUGINS = "--plugin MODULE imports a module that registers parts."
COMMANDS: dict[str, Callable[..., Any]] = {
    "train": train,
    "convert": with_json(convert),
    "recipe": recipe,
    "eval": with_json(evaluate),
    "reproduce": with_json(reproduce),
    "show": show,
    "export": export,
    "demo": demo,
    "bench": with_json(bench),
    "zoo": with_json(zoo),
}


def main() -> None:
    """Run a command; a SensoriumError is one sentence on standard error and exit code 2."""
    spell_out()
    try:
        flags.check_arguments(sys.argv[1:])
        about = f"Agents whose sensors are shuffled. {_PLUGINS}"
        with whole_output():
            with reserved_output():  # a plugin may print too
                arguments = import_plugins(sys.argv[1:])
            _mention_plugins(arguments)
            tyro.extras.subcommand_cli_from_dict(
                COMMANDS, prog="sensorium", description=about, args=arguments, config=_CONFIG
            )
    except SensoriumError as error:
        say(str(error))
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "Stopped.")
        sys.exit(130)
    except Exception as error:
        from sensorium.rollout import why_jax_failed

        if (sentence := why_jax_failed(error)) is None:
            raise
        say(sentence)
        sys.exit(2)


def _mention_plugins(arguments: list[str]) -> None:
    """Say in the help of the command that is asked for what `main` reads before all other arguments."""
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is not None and _PLUGINS not in str(command.__doc__):
        command.__doc__ = str(command.__doc__).replace("Args:", f"{_PLUGINS}\n\n    Args:", 1)
