"""The losses of the trainers that PPO and DAgger replace: the same batch gives the same gradients."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sensorium.perturbations import Shuffle
from sensorium.policies import AttentionNeuronConfig, Gaussian
from sensorium.rollout import DeviceEngine, HostEngine, make_world
from sensorium.training import cloning, controller_imitation, controller_ppo, lanes, recurrent_ppo
from sensorium.training.critic import Student
from sensorium.training.dagger import Dagger, DaggerConfig, Labelled, Round
from sensorium.training.experts import Asked
from sensorium.training.ppo import Batch, Explored, Ppo, PpoConfig
from sensorium.training.sensor_identity import with_probe
from sensorium.training.teachers import AgentTeacher
from tests.probes import context
from tests.training.spot_world import EYES, WORLD, bold_teacher

T, B = 12, 6
WALK = "gym:tests.host_worlds:Walk-v0"
RANDOM = np.random.default_rng(0)


class NoiseAfterTanh(Gaussian):
    """As the trainer of the ant had it."""

    def log_prob(self, drawn, outputs, std):
        return super().log_prob(drawn, self.action(outputs), std)

    def to_action(self, drawn):
        return jnp.clip(drawn, -1, 1)


class Squared(Gaussian):
    """As cloning had it."""

    def distance(self, outputs, wanted, weights):
        return jnp.mean((self.action(outputs) - wanted) ** 2)


def same(one, other):
    for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(one) if leaf.size) > 1e-3


def normal(*shape):
    return jnp.asarray(RANDOM.normal(size=shape), jnp.float32)


def test_ppo_of_agents_with_memory():
    engine = HostEngine(make_world(WALK, Shuffle()), workers=0)
    config = AttentionNeuronConfig(num_queries=4, message_size=4)
    policy = config.build(2, 2, jax.random.key(0))
    old = recurrent_ppo.RecurrentPpo(
        recurrent_ppo.RecurrentPpoConfig(identity_weight=0.2), lambda key: policy, engine
    )
    new = Ppo(PpoConfig(sensor_id_coef=0.2), context(lambda key: policy, engine))
    probed = with_probe(
        dataclasses.replace(policy, distribution=NoiseAfterTanh()), 2, 2, jax.random.key(1)
    )
    carry = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf[..., None], (*leaf.shape, B)), policy.initial_carry(2)
    )
    started = jnp.asarray(RANDOM.random((T, B)) < 0.2)
    readings, drawn, log_prob = normal(T, 2, B), normal(T, 2, B), normal(T, B)
    sources = jnp.asarray(RANDOM.integers(-1, 2, (T, 2, B)))
    advantages, std = normal(T, B), jnp.asarray(0.7)
    moments = lanes.Moment(started, readings, sources, drawn, drawn, log_prob)
    expected = jax.grad(old._policy_loss, has_aux=True)(
        Student(policy, probed.probe), lanes.Memories(carry, ()), moments, jnp.log(std), advantages
    )[0]
    record = Explored(readings, sources, drawn, log_prob)
    batch = Batch(carry, started, jnp.ones((T, B), bool), record, normal(T, 3, B), advantages, None)
    found = eqx.filter_grad(new.policy_loss, has_aux=True)(probed, batch, std)[0]
    same((found.policy, found.probe), (expected.policy, expected.probe))


def test_ppo_of_controllers():
    policy = EYES.build(WORLD.senses, 2, jax.random.key(0))
    engine = DeviceEngine(WORLD)
    old = controller_ppo.ControllerPpo(
        controller_ppo.ControllerPpoConfig(window=5, clip_range=0.4), lambda key: policy, WORLD
    )
    new = Ppo(PpoConfig(freeze_encoder=True), context(lambda key: policy, engine))
    seen, drawn, log_prob, advantages = normal(T, B, 8), normal(T, B, 2), normal(T, B), normal(T, B)
    alive, std = jnp.asarray(RANDOM.random((T, B)) < 0.8), jnp.asarray(0.7)
    carry = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (B, *leaf.shape)), policy.initial_carry(WORLD.senses)
    )
    first = lambda leaf: jnp.swapaxes(leaf, 0, 1)  # noqa: E731
    moments = controller_ppo.Moment(
        *map(first, (seen, drawn, log_prob, alive)),
        *[first(normal(T, B, 2))] * 2,
        first(log_prob),
        first(alive),
    )
    expected = jax.grad(old._policy_loss, has_aux=True)(
        policy, carry, moments, first(advantages), jnp.log(std)
    )[0]
    last = lambda leaf: jnp.moveaxis(leaf, 1, -1)  # noqa: E731
    record = Explored(last(seen), jnp.zeros((T, 0, B), int), last(drawn), log_prob)
    batch = Batch(
        jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), carry),
        jnp.zeros((T, B), bool),
        alive,
        record,
        normal(T, 3, B),
        advantages,
        None,
    )
    model = with_probe(policy, WORLD.senses, WORLD.senses, jax.random.key(1))
    same(eqx.filter_grad(new.policy_loss, has_aux=True)(model, batch, std)[0].policy, expected)


def test_imitation_of_controllers():
    policy = EYES.build(WORLD.senses, 2, jax.random.key(0))
    teacher = bold_teacher(2, 2)
    weights = (3.0, 1.0)
    old = controller_imitation.ControllerImitation(
        controller_imitation.ControllerImitationConfig(action_weights=weights),
        lambda key: policy,
        WORLD,
        teacher,
    )
    config = DaggerConfig(freeze_encoder=True, action_weights=weights, num_steps=T, window=T)
    new = config.build(context(lambda key: policy, DeviceEngine(WORLD), teacher))
    seen, wanted = normal(T, 8, B), jnp.tanh(normal(T, 2, B))
    counts = jnp.asarray(RANDOM.random((T, B)), jnp.float32)
    alive = jnp.ones((T, B), bool)
    expected = jax.grad(old._loss)(
        policy, controller_imitation.Samples(seen, wanted, alive), counts
    )
    keys = jax.random.split(jax.random.key(1), B)
    window = Round(Labelled(seen, wanted, wanted), jnp.zeros((T, B), bool).at[0].set(True), alive)
    model = with_probe(policy, WORLD.senses, WORLD.senses, jax.random.key(1))
    found = eqx.filter_grad(new.imitation_loss, has_aux=True)(
        model, new._blank(policy, keys), window, counts, jnp.arange(B), jax.random.key(2)
    )[0]
    same(found.policy, expected)


def test_cloning():
    engine = HostEngine(make_world(WALK), workers=0)
    policy = AttentionNeuronConfig(num_queries=4, message_size=4).build(2, 2, jax.random.key(0))
    old = cloning.Cloning(
        cloning.CloningConfig(identity_weight=0.2),
        lambda key: policy,
        engine,
        AgentTeacher(policy, engine.world),
        Path(),
    )
    config = DaggerConfig(sensor_id_coef=0.2, num_steps=20, window=20)
    new = Dagger(config, context(lambda key: policy, engine), Asked(None, None, False), None)
    probed = with_probe(
        dataclasses.replace(policy, distribution=Squared()), 2, 2, jax.random.key(1)
    )
    seen, done, wanted = normal(T, 2, B), normal(T, 2, B), jnp.tanh(normal(T, 2, B))
    before = jnp.concatenate([jnp.zeros((1, 2, B)), done[:-1]])
    alive = jnp.asarray(RANDOM.random((T, B)) < 0.8, jnp.float32)
    memory = new._blank(policy, jax.random.split(jax.random.key(1), B))
    numbers, key = jnp.arange(B), jax.random.key(2)
    expected = jax.grad(old._loss, has_aux=True)(
        Student(policy, probed.probe),
        lanes.Memories(*memory),
        cloning.Batch(seen, before, wanted, alive),
        numbers,
        key,
    )[0]
    window = Round(Labelled(seen, done, wanted), jnp.zeros((T, B), bool).at[0].set(True), alive > 0)
    found = eqx.filter_grad(new.imitation_loss, has_aux=True)(
        probed, memory, window, alive / alive.sum(), numbers, key
    )[0]
    same((found.policy, found.probe), (expected.policy, expected.probe))
