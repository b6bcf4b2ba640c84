"""DAgger: students come to do what experts do, in every cell; rounds and memory are what they say."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium import recipes, zoo
from sensorium.bridges import minari
from sensorium.bridges.advised import Advised
from sensorium.bridges.open_env import open_env
from sensorium.envs import CarRacing, CartPoleSwingUpHarder, Perturbed
from sensorium.errors import AgentFileError, ConfigError, RunError, UnknownNameError
from sensorium.perturbations import RewireMotors, Shuffle
from sensorium.policies import (
    AnonymousMotorNeuronsConfig,
    AttentionAgentConfig,
    AttentionNeuronConfig,
    ConvolutionalConfig,
    FeedForwardConfig,
    Reading,
    VisionAttentionNeuronConfig,
    as_population,
    to_vector,
)
from sensorium.recipes import Recipe, Stage, find
from sensorium.recipes.training import fit_start
from sensorium.rollout import DeviceEngine, HostEngine, make_world, open_collector, open_engine
from sensorium.rollout.acting import Actor, PolicyActor
from sensorium.training import DaggerConfig
from sensorium.training.auxiliary import attention_loss
from sensorium.training.experts import Dataset, ask, read_dataset
from sensorium.training.rounds import Following, Labelled, Round, sequences
from sensorium.zoo import Agent
from tests.probes import (
    UNTRAINED,
    ChoosingWorld,
    FollowWorld,
    Stopped,
    stop_after,
    trainer_of,
)
from tests.training.spot_world import EYES, WORLD, assert_encoder_is_frozen, bold_expert, flat

WALK = "gym:tests.host_worlds:Walk-v0"
EXPERT = FeedForwardConfig((), clipped=True)
CONFIG = DaggerConfig(
    num_envs=16,
    buffer_rounds=2,
    num_batches=20,
    batch_size=8,
    num_steps=12,
    window=6,
    warm_up_steps=4,
    learning_rate=1e-2,
)
FROZEN = dataclasses.replace(CONFIG, freeze_encoder=True, num_batches=40, ema_decay=0.9)


@pytest.fixture
def expert(key):
    """Follows the first reading, and takes the bonus."""
    blank = EXPERT.build(2, 2, key)
    leaves = [jnp.array([[1 / 3, 0.0], [0.0, 0.0]]), jnp.array([0.0, 1.0])]
    return jax.tree.unflatten(jax.tree.structure(blank), leaves)


@pytest.fixture
def expert_file(expert, tmp_path):
    recipe = Recipe("expert", "Follows.", EXPERT, UNTRAINED, env=WALK)
    Agent(expert, recipe, {}).save(tmp_path / "expert.safetensors")
    return str(tmp_path / "expert.safetensors")


def learn(world, agent, config, expert, directory, generations=5):
    """Train; all states and metrics, and the mean return of 32 episodes at the end."""
    with open_engine(make_world(world) if isinstance(world, str) else world) as engine:
        trainer = trainer_of(engine, agent, config, expert, directory, generations)
        states, metrics = [trainer.init(jax.random.key(0))], []
        for _ in range(generations):
            state, figures = trainer.step(states[-1])
            states.append(state)
            metrics.append(figures)
        score = engine.returns(trainer.candidates(state), jax.random.split(jax.random.key(1), 32))
    return trainer, states, metrics, float(score.mean())


def losses(metrics):
    return [float(each.figures["loss"]) for each in metrics]


class Sighted(Actor):
    """Says of images whether they are bright."""

    def act(self, started, episodes, observations):
        bright = observations.mean(axis=(1, 2, 3)) > 127
        return np.stack([~bright, bright], axis=1).astype(np.float32)


def points(state):
    """Where the spot is, from the true state."""
    return jnp.stack([jnp.where(state.left, -0.9, 0.9), -0.9])


@pytest.mark.parametrize("config", [CONFIG, FROZEN], ids=["whole", "frozen"])
def test_a_student_of_images_learns_from_a_policy_that_reads_the_state(config, tmp_path):
    expert = bold_expert(features=2, actions=2)
    _, states, metrics, _ = learn(WORLD, EYES, config, expert, tmp_path, 3)
    found = losses(metrics)
    assert found[-1] < 0.4 * found[0], found
    if config.freeze_encoder:
        assert_encoder_is_frozen("look", states[0], states[-1])


def test_a_student_of_images_learns_from_a_function_of_the_state(tmp_path):
    agent = ConvolutionalConfig((4,), (8,), (4,), (16,))
    *_, score = learn(WORLD, agent, CONFIG, points, tmp_path, 3)
    assert score > 16  # of 20 times 0.99; one that points nowhere earns about 0


def test_a_student_of_images_on_the_host(tmp_path):
    config = dataclasses.replace(CONFIG, num_envs=8)
    agent = ConvolutionalConfig((8,), (4,), (4,), (16,))
    *_, score = learn("gym:tests.host_worlds:Shades-v0", agent, config, Sighted(), tmp_path)
    assert score > 18  # of 20; chance is 10


def seeing(env, observation, info):
    """Says of `GreyStripes` what pays, whether they stand, and nothing."""
    return np.array([1.0 if env.standing else -1.0]), (env.standing, np.nan)


seeing.privileged = ("standing", "unknown")

STRIPES = "gym:tests.host_worlds:GreyStripes-v0"
LISTENER = VisionAttentionNeuronConfig(
    num_queries=4, patch_size=6, message_size=4, reading=Reading.WHOLE, hidden_size=8, hidden_rows=0
)


LOOKING = AttentionAgentConfig(patch_size=4, stride=4, top=2, channels=1)


def showing(env, observation, info):
    """Does the same, and shows a box."""
    action, known = seeing(env, observation, info)
    return action, (*known, 0, 0, 4, 4)


showing.privileged, showing.boxes = seeing.privileged, 1


def test_a_memory_learns_what_its_expert_knows(tmp_path):
    found = {}
    for coef in (0.0, 1.0):
        config = dataclasses.replace(CONFIG, num_envs=8, privileged_coef=coef)
        _, states, metrics, _ = learn(STRIPES, LISTENER, config, seeing, tmp_path / str(coef))
        found[coef] = [float(each.figures.get("privileged_loss", np.nan)) for each in metrics]
    assert np.isnan(found[0.0]).all()
    assert found[1.0][-1] < 0.1, found  # always the same guess is 0.5 from it
    assert states[-1].learner.model.privileged.weight.shape == (2, 8)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (LISTENER, "asks for an expert beside an environment: a function with the attribute"),
        (ConvolutionalConfig((8,), (4,), (4,), (16,)), "asks for a student with an LSTM"),
    ],
)
def test_what_cannot_learn_what_an_expert_knows(agent, words, tmp_path):
    config = dataclasses.replace(CONFIG, num_envs=8, privileged_coef=1.0)
    expert = Sighted() if agent is LISTENER else seeing
    with pytest.raises(ConfigError, match=words):
        learn(STRIPES, agent, config, expert, tmp_path)


def test_trainers_share_what_is_compiled_only_where_experts_give_the_same(tmp_path):
    def other(env, observation, info):
        return showing(env, observation, info)

    other.privileged, other.boxes = (), 2  # as many numbers as `showing` gives, and two more
    config = dataclasses.replace(CONFIG, num_envs=8, attention_coef=1.0)
    with HostEngine(make_world(STRIPES)) as engine:
        one, same, two = (
            trainer_of(engine, LOOKING, config, expert, tmp_path)
            for expert in (showing, showing, other)
        )
    assert one == same
    assert one != two


@given(st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23)), min_size=1, max_size=3))
def test_attention_in_boxes_is_best(middles):
    corners, size = LOOKING.build((24, 24, 1), 2, jax.random.key(0)).patches(24, 24)
    boxes = np.full((4, 4), np.nan, np.float32)
    boxes[: len(middles)] = np.tile(middles, 2) + np.array([-2, -2, 2, 2])
    shown = jnp.asarray(boxes)

    def loss(attention):
        return float(attention_loss(jnp.asarray(attention)[None], (corners, size), shown))

    apart = np.abs(corners + (size - 1) / 2 - np.array(middles)[:, None]).max(-1)
    there = (apart < 2 + size / 2).astype(np.float32)
    inside = there.sum(0) > 0
    wanted = (there / np.maximum(there.sum(1, keepdims=True), 1)).sum(0)
    if inside.any():
        assert loss(wanted) <= loss(inside.astype(np.float32)) + 1e-5
        assert loss(inside.astype(np.float32)) <= loss(np.ones(len(corners), np.float32)) + 1e-5
    assert float(attention_loss(jnp.ones((1, len(corners))), (corners, size), shown[3:])) == 0.0


@pytest.mark.parametrize(
    ("agent", "expert", "change", "words"),
    [
        (LOOKING, seeing, {}, "attribute `boxes`"),
        (LOOKING, showing, {"freeze_encoder": True}, "an encoder that learns"),
        (ConvolutionalConfig((8,), (4,), (4,), (16,)), showing, {}, "does not attend to patches"),
    ],
)
def test_what_cannot_learn_where_to_look(agent, expert, change, words, tmp_path):
    config = dataclasses.replace(CONFIG, num_envs=8, attention_coef=1.0, **change)
    with pytest.raises(ConfigError, match=words):
        learn(STRIPES, agent, config, expert, tmp_path)


def wise(env, observation, info):
    """The action that `Choices` pays for: it knows the environment itself."""
    return np.array([np.searchsorted([-0.5, 0.5], env.reading[0]), env.reading[1] > 0])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_student_of_choices_learns_from_a_function_of_the_environment(workers, tmp_path):
    world = make_world("gym:tests.host_worlds:Choices-v0")
    with HostEngine(world, workers=workers) as engine:
        trainer = trainer_of(engine, FeedForwardConfig((16,)), CONFIG, wise, tmp_path)
        state = trainer.init(jax.random.key(0))
        for _ in range(5):
            state, _ = trainer.step(state)
        policy, keys = trainer.candidates(state), jax.random.split(jax.random.key(1), 32)
        episodes = engine.run_population(policy, keys)
    # Both choices are right at most steps, of which an episode has 5 to 14
    assert float(episodes.total.sum() / episodes.length.sum()) > 0.9


def halves(env, observation, info):
    """Finds both options of `Shades` as likely where it is dark."""
    bright = env.grey > 127
    return np.array([0.5, 0.5] if not bright else [0.0, 1.0])


def test_an_expert_may_say_how_likely_options_are(tmp_path):
    env = Advised(open_env("tests.host_worlds:Shades-v0"), halves)
    seen = set()
    for seed in range(20):
        env.reset(seed=seed)
        seen.add((bool(env.unwrapped.grey > 127), *env.advice.tolist()))
    assert seen == {(False, 0.0, 0.0), (True, -1.0, 1.0)}
    found = {}
    for name, expert in {"likely": halves, "chosen": Sighted()}.items():
        config = dataclasses.replace(CONFIG, num_envs=8)
        agent = ConvolutionalConfig((8,), (4,), (4,), (16,))
        world = "gym:tests.host_worlds:Shades-v0"
        _, states, *_ = learn(world, agent, config, expert, tmp_path / name)
        dark = np.full((8, 8, 3), 20, np.uint8)
        policy = states[-1].learner.model.policy
        found[name], _ = policy(dark, ())
    assert abs(found["likely"][0] - found["likely"][1]) < 0.5
    assert found["chosen"][0] - found["chosen"][1] > 1


def wavering(env, observation, info):
    """Is wrong at most steps, which do not matter."""
    right = int(env.grey > 127)
    wrong = env.np_random.random() < 0.7
    return right ^ wrong, (0.0 if wrong else 2.0,)


wavering.weighs = True


def test_an_expert_may_say_how_much_its_advice_matters(tmp_path):
    config = dataclasses.replace(CONFIG, num_envs=8)
    agent = ConvolutionalConfig((8,), (4,), (4,), (16,))
    world = "gym:tests.host_worlds:Shades-v0"
    _, states, *_ = learn(world, agent, config, wavering, tmp_path)
    policy = states[-1].learner.model.policy
    for grey in (20, 235):
        logits, _ = policy(np.full((8, 8, 3), grey, np.uint8), ())
        assert int(logits.argmax()) == int(grey > 127)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((1, (0.5,)), r"2 names in `privileged`, but gave numbers of shape \(1,\)"),
        ((np.array([np.nan, 1.0]), (0.0, 0.0)), r"finds options \[nan, 1.0\] likely"),
    ],
)
def test_advice_that_is_none(said, words):
    def strange(env, observation, info):
        return said

    strange.privileged = ("one", "other")
    env = Advised(open_env("tests.host_worlds:Shades-v0"), strange)
    with pytest.raises(ConfigError, match=words):
        env.reset(seed=0)


@pytest.fixture
def dataset(expert, tmp_path):
    """Episodes of the expert on disk, in the format of Minari."""
    pytest.importorskip("minari", reason="the extra `experts` is not installed")
    world = make_world(WALK)
    with HostEngine(world, workers=0, lanes=4) as engine:
        keys = jax.random.split(jax.random.key(0), 1)
        seen = engine.transcribe(
            lambda: PolicyActor(as_population(expert), world, keys), np.arange(40)
        )
    actions = world.to_env_actions(seen.actions.reshape(-1, 2)).reshape(40, 20, 2)
    minari.write(tmp_path / "shown", world, [minari.Episodes(*seen._replace(actions=actions))])
    return tmp_path / "shown", seen


@pytest.mark.parametrize("downloaded", [False, True])
def test_a_student_learns_from_a_dataset(downloaded, dataset, tmp_path):
    path, _ = dataset
    if downloaded:  # as `minari download` lays it out
        path = path.rename(tmp_path / "data").parent
    stage = RECIPE.last.changed(
        expert=str(path), demonstration_rounds=0, num_rounds=0, num_batches=20, generations=6
    )
    recipe = dataclasses.replace(RECIPE, stages=(stage,), policy=FeedForwardConfig((8,)))
    rows = []
    zoo.train(recipe, tmp_path / "run", quiet=True, on_generation=rows.append)
    assert rows[-1]["loss"] < 0.3 * rows[0]["loss"]
    assert [row["env_steps"] for row in rows] == [0] * 6
    again = recipe.override({"num_rounds": 1})
    with pytest.raises(ConfigError, match="A dataset is learned from as it is"):
        zoo.train(again, tmp_path / "second", quiet=True)


def test_the_episodes_of_a_dataset_are_cut_into_stretches(dataset):
    path, seen = dataset
    steps = read_dataset(Dataset(path), make_world(WALK), 8)
    assert steps.alive.sum() == seen.lengths.sum()
    assert steps.alive[0].all()
    # The first forty are the beginnings, in order
    np.testing.assert_array_equal(
        steps.started.sum(axis=0), [1] * 40 + [0] * (steps.alive.shape[1] - 40)
    )
    np.testing.assert_allclose(steps.observations[:, 3], seen.observations[3, :8], atol=1e-6)
    alive = steps.alive[:, 3]
    np.testing.assert_allclose(steps.actions[alive, 3], seen.actions[3, :8][alive], atol=1e-5)


def test_a_dataset_must_be_of_the_world(dataset, tmp_path):
    path, _ = dataset
    with pytest.raises(ConfigError, match=r"shows \(2,\) and has 2 action\(s\); Pendulum-v1 shows"):
        read_dataset(Dataset(path), make_world("gym:Pendulum-v1"), 8)
    with pytest.raises(ConfigError, match="with a world on the host"):
        read_dataset(Dataset(path), WORLD, 8)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="is not a dataset of Minari"):
        read_dataset(Dataset(tmp_path / "empty"), make_world(WALK), 8)


def test_a_student_of_choices_on_the_device(tmp_path):
    def wanted(state):
        right = (state.readings > 0).astype(jnp.float32)
        return jnp.stack([1 - right, right], axis=1).reshape(-1)

    world = ChoosingWorld()
    *_, score = learn(world, FeedForwardConfig((8,)), CONFIG, wanted, tmp_path)
    assert score > 17  # of 20; chance is 5


def test_a_student_with_shuffled_sensors_on_the_host(expert, expert_file, tmp_path):
    recipe = Recipe(
        name="student",
        summary="Follows who follows.",
        policy=AttentionNeuronConfig(num_queries=4, message_size=4),
        stages=(
            Stage(
                "dagger",
                dataclasses.replace(CONFIG, sensor_id_coef=0.1, ema_decay=0.5, buffer_rounds=0),
                generations=12,
                perturbation=Shuffle(),
                expert=expert_file,
                test_every=1,
                test_episodes=8,
            ),
        ),
        env=WALK,
    )
    rows = []
    zoo.train(recipe, tmp_path / "run", quiet=True, on_generation=rows.append)
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert rows[-1]["sensor_id_loss"] < rows[0]["sensor_id_loss"]
    assert rows[-1]["best_test"] > rows[0]["test"]
    assert rows[-1]["rounds"] == 12


def test_behaviour_cloning_learns_from_the_expert_alone(expert, tmp_path):
    config = dataclasses.replace(CONFIG, demonstration_rounds=2, num_rounds=0, buffer_rounds=0)
    _, _, metrics, score = learn(WALK, FeedForwardConfig((8,)), config, expert, tmp_path, 6)
    found = losses(metrics)
    assert found[-1] < 0.1 * found[0]
    assert [each.env_steps > 0 for each in metrics] == [True] + [False] * 5
    with open_engine(make_world(WALK)) as engine:
        best = engine.returns(as_population(expert), jax.random.split(jax.random.key(1), 32))
    assert score > float(best.mean()) - 2.5


def test_a_frozen_encoder_of_all_patches_stays_as_it_is(tmp_path):
    agent = VisionAttentionNeuronConfig(num_queries=7, patch_size=4, reading=Reading.WHOLE)
    config = dataclasses.replace(FROZEN, num_batches=4)
    _, states, _, _ = learn(WORLD, agent, config, points, tmp_path, 2)
    assert_encoder_is_frozen("layer", states[0], states[-1])


def behaviour_of(world, student, expert, beta=0.0, noise=0.0, lanes=4, frozen=False):
    asked, _ = ask(expert, world, "DAgger")
    return Following(
        student,
        asked,
        world.perturbation,
        jnp.asarray(beta),
        jnp.full(lanes, noise, jnp.float32),
        frozen,
        False,
    )


def collected(world, behaviour, lanes=4, steps=20):
    with open_engine(world) as engine:
        collector = open_collector(engine, lanes, jax.random.key(1), cut_first=False)
        return collector.collect(behaviour, steps, jax.random.key(2)).transitions


def test_labels_are_what_the_expert_would_do_in_the_place_of_the_student(expert):
    world = make_world(WALK, Shuffle())
    student = AttentionNeuronConfig(num_queries=4).build(2, 2, jax.random.key(0))
    labelled = collected(world, behaviour_of(world, student, expert)).record
    first = np.clip(labelled.received[..., 0] / 3, -1, 1)  # received in the world's own order
    np.testing.assert_allclose(labelled.expert_action[..., 0], first, atol=1e-6)
    assert not np.allclose(labelled.action, labelled.expert_action, atol=0.1)


def test_an_expert_labels_the_motors_that_the_student_has():
    """An expert of the plain cart, and motors that are rewired as well: their force is the expert's."""
    world = make_world("CartPoleMotors", RewireMotors(5, signed=True))
    expert = FeedForwardConfig((4,)).build(5, 1, jax.random.key(1))
    student = FeedForwardConfig((4,)).build(5, 4, jax.random.key(0))
    record = collected(world, behaviour_of(world, student, expert)).record
    bare, seen = world.unperturbed, set()
    for lane in range(4):
        for step in range(20):
            wanted = np.asarray(record.expert_action[step, lane])
            force = expert.step(jnp.asarray(record.received[step, lane]), ())[0]
            size = np.abs(force[0] / wanted[wanted != 0])
            assert size.shape == (1,)
            assert 0.999 < size[0] < 2.001
            seen.add((lane, int(np.flatnonzero(wanted)[0])))
    assert len(seen) > 4
    assert bare.num_plain_actions == 1
    with pytest.raises(ConfigError, match="2 action"):
        ask(FeedForwardConfig(()).build(5, 2, jax.random.key(0)), world, "DAgger")


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_from_nothing_to_all(share):
    with pytest.raises(ConfigError, match="demonstration_beta"):
        DaggerConfig(demonstration_beta=share).check(make_world(WALK))


def test_a_student_may_begin_with_what_it_visits_itself(expert, tmp_path):
    for beta, differs in ((1.0, False), (0.0, True)):
        config = DaggerConfig(
            num_envs=4,
            rollout_steps=5,
            demonstration_rounds=2,
            demonstration_beta=beta,
            num_rounds=0,
            num_batches=1,
            num_steps=5,
            window=5,
            warm_up_steps=0,
            action_noise=(0.0,),
        )
        dagger, *_ = learn(
            WALK, FeedForwardConfig((4,)), config, expert, tmp_path / str(beta), generations=1
        )
        first = dagger._buffer.rounds[0].labelled
        assert np.allclose(first.action, first.expert_action, atol=1e-6) != differs


def test_an_expert_with_a_memory_is_told_what_was_done():
    world = make_world(WALK)
    policy = AttentionNeuronConfig(num_queries=4).build(2, 2, jax.random.key(3))
    student = FeedForwardConfig(()).build(2, 2, jax.random.key(0))
    steps = collected(world, behaviour_of(world, student, policy), steps=12)
    act = jax.jit(lambda seen, carry: policy.step(seen, carry)[:2])
    for lane in range(4):
        for step in range(12):
            if steps.started[step, lane]:
                carry = policy.initial_carry(2)
            record = jax.tree.map(lambda leaf, at=(step, lane): jnp.asarray(leaf[at]), steps.record)
            expected, carry = act(record.received, carry)
            np.testing.assert_allclose(record.expert_action, expected, atol=1e-5)
            carry = policy.after_action(carry, record.action)


@pytest.mark.parametrize(("beta", "whose"), [(1.0, "expert_action"), (0.0, None)])
def test_the_experts_share_in_what_is_done(beta, whose):
    student = EYES.build(WORLD.observation_spec, 2, jax.random.key(0))
    record = collected(WORLD, behaviour_of(WORLD, student, points, beta)).record
    same = np.allclose(record.action, record.expert_action)
    assert same == (whose is not None)
    noisy = collected(WORLD, behaviour_of(WORLD, student, points, beta, noise=0.5)).record
    assert np.abs(noisy.action).max() <= 1
    assert not np.allclose(noisy.action, record.action, atol=0.1)


def test_the_share_falls_over_its_generations(tmp_path):
    trainer = trainer_of(
        DeviceEngine(WORLD), EYES, dataclasses.replace(CONFIG, beta_generations=2), points, tmp_path
    )
    assert [trainer._beta(generation) for generation in range(4)] == [1.0, 0.5, 0.0, 0.0]


def test_what_is_recorded_of_a_frozen_encoder_are_its_features():
    student = EYES.build(WORLD.observation_spec, 2, jax.random.key(0))
    record = collected(WORLD, behaviour_of(WORLD, student, points, frozen=True)).record
    sides = {}
    for left in (False, True):
        state = WORLD.reset(jax.random.key(0))[1]._replace(left=jnp.asarray(left))
        features = student.encode(
            WORLD.observe(state), student.initial_carry(WORLD.observation_spec)
        )[0]
        sides[tuple(np.asarray(features))] = left
    found = {tuple(features) for features in record.received.reshape(-1, 8)}
    assert found == set(sides)


def rounds_of(lengths, steps, remembers=True):
    """Rounds whose features and memories say which round, lane and step they are of."""
    made = []
    for number, of_lanes in enumerate(lengths):
        place = np.stack(
            np.meshgrid(np.arange(steps), np.arange(len(of_lanes)), indexing="ij"), axis=-1
        )
        received = np.concatenate([np.full((*place.shape[:2], 1), number), place], axis=-1)
        alive = place[..., 0] < np.asarray(of_lanes)
        actions = np.zeros((*place.shape[:2], 1), np.float32)
        weights = np.ones(actions.shape[:2], np.float32)
        labelled = Labelled(received, actions, actions, actions[..., :0], weights)
        memory = received[0] if remembers else None
        made.append(Round(labelled, place[..., 0] == 0, alive, memory))
    return made


@given(
    st.lists(st.lists(st.integers(1, 10), min_size=3, max_size=3), min_size=1, max_size=3),
    st.integers(1, 10),
    st.integers(0, 9),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_sequences_are_stretches_of_the_rounds(lengths, num_steps, warm_up, seed, remembers):
    warm_up = min(warm_up, num_steps - 1)
    rounds = rounds_of(lengths, 10, remembers)
    for batch, counts, remembered in sequences(
        rounds,
        np.random.default_rng(seed),
        num_batches=3,
        batch_size=8,
        num_steps=num_steps,
        warm_up_steps=warm_up,
    ):
        assert counts.shape == (num_steps, 8)
        number, step, lane = np.moveaxis(batch.labelled.received, 1, 0)
        before = ~batch.alive & (step == 0)  # a warm-up may begin before the round
        assert (
            np.diff(step, axis=0) == ~before[1:] & ~before[:-1]
        ).all()  # consecutive, of one lane
        assert not batch.started[before].any()
        assert not before[warm_up:].any()
        assert (number == number[0]).all()
        assert (lane == lane[0]).all()
        alive = step < np.vectorize(lambda n, b: lengths[n][b])(number, lane)
        np.testing.assert_array_equal(batch.alive, alive & ~before)
        warm = np.arange(num_steps)[:, None] >= warm_up
        np.testing.assert_array_equal(counts, batch.alive & warm)
        assert (counts.sum(axis=0) > 0).all()  # each sequence has something to learn from
        np.testing.assert_array_equal(remembered, (step[0] == 0) & remembers)
        if remembers:
            np.testing.assert_array_equal(batch.memory[:, [0, 2]].T, (number[0], lane[0]))


def test_sequences_as_long_as_a_round_are_each_lane_once():
    sizes = dict(num_batches=2, batch_size=4, num_steps=10, warm_up_steps=0)
    batches = list(sequences(rounds_of([[10] * 8], 10), np.random.default_rng(0), **sizes))
    lanes = np.concatenate([batch.labelled.received[0, 2] for batch, *_ in batches])
    assert sorted(lanes) == list(range(8))


def test_a_round_goes_on_from_the_memory_before_it(expert, tmp_path):
    config = dataclasses.replace(
        CONFIG,
        num_rounds=2,
        rollout_steps=6,
        buffer_rounds=1,
        num_batches=1,
        batch_size=16,
        warm_up_steps=0,
        learning_rate=1e-9,
        action_noise=(0.0,),
    )
    with open_engine(make_world(WALK, Shuffle())) as engine:
        agent = AttentionNeuronConfig(num_queries=4)
        trainer = trainer_of(engine, agent, config, expert, tmp_path)
        trainer.step(trainer.init(jax.random.key(0)))
        (second,) = trainer._buffer.rounds
        learner = trainer.init(jax.random.key(0)).learner
        _, (figures,) = trainer._learn(learner, jax.random.key(1))
    # What it would do now is what it did: sensors come by the same channels, and it remembers the same
    assert not second.started[0].all()
    apart = ((second.labelled.action - second.labelled.expert_action) ** 2).mean(axis=-1)
    assert float(figures["loss"]) == pytest.approx(np.log1p(apart).mean(), rel=1e-4)


def test_nothing_is_learned_after_an_end(tmp_path):
    trainer = trainer_of(DeviceEngine(WORLD), EYES, CONFIG, points, tmp_path)
    learner = trainer.init(jax.random.key(0)).learner
    blank = np.zeros((12, 4, 24, 24, 3), np.uint8)
    actions = np.ones((12, 4, 2), np.float32)
    window = Round(
        Labelled(blank, actions, actions, actions[..., :0], actions[..., 0]),
        np.zeros((12, 4), bool),
        np.zeros((12, 4), bool),
    )
    memory = trainer._blank(learner.model.policy, jax.random.split(jax.random.key(1), 4))
    gradient, _ = jax.grad(trainer.imitation_loss, has_aux=True)(
        learner.model, memory, window, jnp.zeros((12, 4)), jnp.arange(4), jax.random.key(2)
    )
    assert not flat(gradient).any()


def test_a_warm_up_makes_the_memory_and_nothing_else(tmp_path):
    trainer = trainer_of(DeviceEngine(WORLD), EYES, CONFIG, points, tmp_path)
    learner, random = trainer.init(jax.random.key(0)).learner, np.random.default_rng(0)
    images = random.integers(256, size=(12, 4, 24, 24, 3), dtype=np.uint8)
    actions = random.uniform(-1, 1, (2, 12, 4, 2)).astype(np.float32)
    alive = np.arange(12)[:, None] >= np.arange(4)  # of all but one lane it begins before the round
    labelled = Labelled(images, *actions, actions[0, ..., :0], alive)
    window = Round(labelled, np.zeros_like(alive), alive)
    weights = (alive & (np.arange(12)[:, None] >= 4)) / 32
    memory = trainer._blank(learner.model.policy, jax.random.split(jax.random.key(1), 4))
    lanes = memory, window, jnp.asarray(weights), jnp.arange(4)
    whole, split = (
        jax.grad(trainer.imitation_loss, has_aux=True)(
            learner.model, *lanes, jax.random.key(2), blank
        )
        for blank in (0, 4)
    )
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(split), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_what_is_kept_is_a_moving_average_of_the_student(tmp_path):
    config = dataclasses.replace(CONFIG, num_batches=1, ema_decay=0.5)
    _, (start, end), _, _ = learn(WORLD, EYES, config, points, tmp_path, 1)
    weights = [
        flat(each.lstm)
        for each in (
            start.learner.model.policy,
            end.learner.model.policy,
            end.learner.average.policy,
        )
    ]
    # Two windows: a quarter start, a quarter after the first, half after the second
    first = 4 * weights[2] - weights[0] - 2 * weights[1]
    assert not np.allclose(weights[1], weights[0])
    # Adam's first step is of the size of the learning rate
    assert np.max(np.abs(first - weights[0])) < 1.1 * CONFIG.learning_rate


RECIPE = Recipe(
    name="student",
    summary="Follows who follows.",
    policy=AttentionNeuronConfig(num_queries=4, message_size=4),
    stages=(
        Stage(
            "dagger",
            dataclasses.replace(
                CONFIG,
                num_batches=2,
                demonstration_rounds=1,
                num_rounds=2,
                rollout_steps=12,
                buffer_rounds=0,
            ),
            generations=5,
            perturbation=Shuffle(),
            expert="somebody",
            test_every=2,
            test_episodes=8,
            checkpoint_every=2,
        ),
    ),
    env=WALK,
)


# One of the expert, and two of the student in each of three generations; a checkpoint after the second. A
# buffer of three needs two of them and the one before
@pytest.mark.parametrize(("buffer", "kept"), [(0, range(7)), (1, ()), (3, range(2, 7))])
def test_it_goes_on_as_if_never_stopped(buffer, kept, expert_file, tmp_path):
    recipe = RECIPE.override({"expert": expert_file, "buffer_rounds": buffer})
    whole = zoo.train(recipe, tmp_path / "whole", quiet=True)
    with pytest.raises(Stopped):
        zoo.train(recipe, tmp_path / "cut", quiet=True, on_generation=stop_after(3))
    saved = {file.name for file in (tmp_path / "cut/data/dagger").glob("*.safetensors")}
    assert saved == {f"round-{number:03d}.safetensors" for number in kept}
    cut = zoo.resume(tmp_path / "cut", quiet=True)
    assert np.array_equal(to_vector(whole), to_vector(cut))
    for run in ("whole", "cut"):
        assert not list((tmp_path / run).glob("data/*"))  # nothing needs them any more


def test_a_damaged_round_is_one_sentence(expert_file, tmp_path):
    recipe = RECIPE.override({"expert": expert_file})
    with pytest.raises(Stopped):
        zoo.train(recipe, tmp_path / "run", quiet=True, on_generation=stop_after(3))
    (tmp_path / "run/data/dagger/round-000.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(AgentFileError, match="round-000"):
        zoo.resume(tmp_path / "run", quiet=True)


def test_it_drives(tmp_path):
    config = dataclasses.replace(FROZEN, num_envs=2, num_batches=2, batch_size=2)
    world = CarRacing().for_training()
    expert = zoo.load("carracing-expert").policy
    with open_engine(world) as engine:
        trainer = trainer_of(engine, AttentionAgentConfig(), config, expert, tmp_path)
        end, metrics = trainer.step(trainer.init(jax.random.key(0)))
    assert np.isfinite(float(metrics.figures["loss"]))
    assert np.isfinite(flat(end.learner.model)).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_steps": 11}, "Sequences of 11 steps do not divide into windows of 6"),
        ({"warm_up_steps": 12}, "12 steps leave nothing after 12 to warm up"),
        ({"action_weights": (1.0,)}, r"1 action_weights for 2 action\(s\)"),
        ({"action_noise": ()}, "at least one"),
        ({"action_noise": (-0.1,)}, "from 0 on"),
        ({"num_rounds": 0}, "DAgger needs rounds to learn from"),
        ({"num_batches": 0}, "num_batches must be at least 1, got 0"),
    ],
)
def test_settings_that_do_not_fit(changes, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        trainer_of(
            DeviceEngine(WORLD), EYES, dataclasses.replace(CONFIG, **changes), points, tmp_path
        )


@pytest.mark.parametrize(
    ("world", "expert", "words"),
    [
        (WORLD, None, "DAgger needs an expert; name one with --expert"),
        (WORLD, bold_expert(5, 2), "takes exactly 5 sensors, got 2"),
        (WORLD, bold_expert(2, 1), r"has 1 action\(s\), but the world takes 2"),
        (WORLD, Sighted(), "learns from a policy of ours, or from a function of its state"),
        (FollowWorld(), Sighted(), "learns from a policy of ours, or from a function"),
        (make_world(WALK), bold_expert(2, 1), r"has 1 action\(s\), but the world takes 2"),
    ],
)
def test_experts_that_do_not_fit(world, expert, words):
    with pytest.raises(ConfigError, match=words):
        ask(expert, world, "DAgger")


def test_an_expert_must_fit_its_world(expert_file, tmp_path):
    elsewhere = dataclasses.replace(RECIPE, env="gym:Pendulum-v1")
    racing = recipes.find("carracing-pi")
    cases = [
        (RECIPE, "", ConfigError, "DAgger needs an expert; name one with --expert"),
        (RECIPE, "ant-fn", UnknownNameError, "There is no agent 'ant-fn'"),
        (RECIPE, "cartpole-pi", ConfigError, r"has 1 action\(s\), but the world takes 2"),
        (elsewhere, expert_file, ConfigError, "takes exactly 2 sensors, got 3"),
        (racing, expert_file, ConfigError, r"takes exactly 2 sensors, got \d+"),
        (RECIPE, str(tmp_path / "no.zip"), AgentFileError, "There is no file"),
        (racing, "carracing-techer", UnknownNameError, "did you mean 'carracing-expert'"),
        (RECIPE, "world", ConfigError, "Walk-v0 has no controller of its own"),
    ]
    for recipe, name, error, sentence in cases:
        with pytest.raises(error, match=sentence):
            zoo.train(recipe.override({"expert": name}), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError, match="not a run directory"):
        zoo.resume(tmp_path / "nothing")


def test_a_world_that_knows_the_best_action_is_an_expert(tmp_path):
    """Motors are learned from its own controller, whatever stands between them and the student."""
    stage = Stage("dagger", CONFIG, 1, RewireMotors(signed=True), expert="world", test_episodes=4)
    policy = AnonymousMotorNeuronsConfig(learns_noise=False)
    recipe = Recipe("thrusters", "x", policy, (stage,), env="Thrusters")
    trained = zoo.train(recipe.override({"rollout_steps": 12}), tmp_path / "run", quiet=True)
    motors = policy.build(5, 8, jax.random.key(0)).motors
    assert float(trained.motors.noise) == float(motors.noise)  # an expert has none
    assert float(trained.motors.gain) != float(motors.gain)


def test_a_policy_as_expert_reads_what_it_can():
    cartpole = Perturbed(CartPoleSwingUpHarder(), Shuffle())
    assert not ask(FeedForwardConfig(()).build(5, 1, jax.random.key(0)), cartpole, "")[
        0
    ].reads_truth
    assert ask(bold_expert(2, 2), WORLD, "")[0].reads_truth


def test_a_recipe_starts_from_an_agent_whose_encoder_it_keeps():
    recipe = find("carracing-noise-10").override({"policy.top": 5})
    shipped = zoo.load("carracing-noise-10").policy
    start = fit_start(shipped, recipe, recipe.last)
    assert start.top == recipe.policy.top
    np.testing.assert_array_equal(flat(start.look), flat(shipped.look))
    assert type(recipe).from_json(recipe.to_json()) == recipe
