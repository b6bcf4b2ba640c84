"""Agents as ONNX files: they act as the agents do, whatever runs them."""

import json
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sensorium
from sensorium import zoo
from sensorium.errors import ExportError, MissingExtraError, WriteError
from sensorium.layers import patch_attention
from sensorium.policies import (
    AnonymousMotorNeuronsConfig,
    AttentionAgentConfig,
    AttentionNeuronConfig,
    DeepSetsConfig,
    FeedForwardConfig,
    KeyMap,
    MotorGraphConfig,
    MotorNeuronsConfig,
    Reading,
    RecurrentConfig,
    SetTransformerConfig,
    VisionAttentionNeuronConfig,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    pytest.importorskip("jax2onnx", reason="the extra `export` is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")

from sensorium.types import with_num_sensors
from sensorium.zoo import onnx as to_onnx

IMAGES = (96, 96, 3)
POLICIES = {
    "feed-forward": (FeedForwardConfig(input_scales=(2.0, 1.0, 1.0, 3.0, 1.0)), 5, False),
    "attention-neuron": (AttentionNeuronConfig(), 5, True),
    "code-fed-back": (AttentionNeuronConfig(code_feedback=True, controller_sizes=(7,)), 5, True),
    "changes": (AttentionNeuronConfig(with_change=True, squash=0.5), 5, True),
    "as-on-the-ant": (AttentionNeuronConfig(bias=True, scale=True), 8, True),
    "nla": (AttentionNeuronConfig(key_map=KeyMap.NLA_INVARIANT), 5, True),
    "nla-published": (AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED), 5, False),
    "deep-sets": (DeepSetsConfig(), 5, True),
    "set-transformer": (SetTransformerConfig(), 5, True),
    "recurrent": (RecurrentConfig(8, (4,)), 5, False),
    "entities": (AttentionNeuronConfig(bias=True, with_change=True), (5, 3), True),
    "entities-set-transformer": (SetTransformerConfig(), (5, 3), True),
    "entities-nla-published": (AttentionNeuronConfig(key_map=KeyMap.NLA_PUBLISHED), (5, 3), False),
    "motors": (MotorNeuronsConfig(hidden_size=8), 5, False),
    "motors-unnamed": (AnonymousMotorNeuronsConfig(), 5, True),
    "motors-attention": (AnonymousMotorNeuronsConfig(num_queries=4), 5, True),
    "motors-graph": (MotorGraphConfig(), 5, True),
    "attention-agent": (AttentionAgentConfig(), IMAGES, False),
    "attention-agent-of-all-patches": (
        AttentionAgentConfig(reader_size=8, head_size=8, action_feedback=True),
        IMAGES,
        False,
    ),
    "images": (VisionAttentionNeuronConfig(num_queries=64), IMAGES, False),
    "images-of-pong": (
        VisionAttentionNeuronConfig(
            num_queries=64,
            reading=Reading.CONVOLUTIONS,
            hidden_size=None,
            learned_norms=True,
            distinct_patches=8,
        ),
        IMAGES,
        False,
    ),
    "images-nla": (
        VisionAttentionNeuronConfig(num_queries=64, key_map=KeyMap.NLA_PUBLISHED),
        IMAGES,
        False,
    ),
}


def open_file(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def first_carry(session, **sizes):
    """The carry as somebody makes it who has nothing but the file."""
    filling = json.loads(session.get_modelmeta().custom_metadata_map["first_carry"])
    kinds = {"tensor(float)": np.float32, "tensor(bool)": np.bool_}
    kinds |= {"tensor(int32)": np.int32, "tensor(uint32)": np.uint32}

    def first(value):
        shape, kind = [sizes.get(side, side) for side in value.shape], kinds[value.type]
        if filling[value.name] == "arange":
            return np.arange(*shape, dtype=kind)
        return np.full(shape, filling[value.name], kind)

    return {
        value.name: first(value) for value in session.get_inputs() if value.name != "observation"
    }


def run(session, observation, carry):
    """A step: action, next carry, and all outputs by name."""
    names = [value.name for value in session.get_outputs()]
    outputs = dict(
        zip(names, session.run(names, {"observation": observation, **carry}), strict=True)
    )
    carry = {name: outputs[f"next_{name}"] for name in carry}
    return outputs["action"], carry, outputs


@pytest.mark.parametrize("name", POLICIES)
def test_every_kind_of_policy_acts_the_same_for_a_hundred_steps(name, tmp_path, key):
    config, spec, any_number = POLICIES[name]
    policy = config.build(spec, 2, key)
    policy = jax.tree.map(lambda leaf: leaf * 0.7 if eqx_array(leaf) else leaf, policy)
    written = to_onnx.export_policy(policy, spec, tmp_path / "agent.onnx")
    assert written.any_number == any_number
    assert written.any_motors == name.startswith("motors")
    session = open_file(tmp_path / "agent.onnx")
    others = [with_num_sensors(spec, count) for count in (1, 3, 17)] if any_number else []
    for size in (spec, *others):
        # Other steps than those of the check at export
        assert to_onnx.difference_from(session, policy, size, 120) <= 1
    if written.any_motors:
        assert to_onnx.difference_from(session, policy.with_motors(7), spec, 120) <= 1


def eqx_array(leaf):
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)


def test_one_file_acts_on_its_own_carry_with_any_number_of_sensors(tmp_path):
    """As one uses it: nothing but the file, its carry from its own metadata, in the real world."""
    agent = zoo.load("cartpole-pi")
    to_onnx.export(agent, tmp_path / "agent.onnx")
    session = open_file(tmp_path / "agent.onnx")
    world = sensorium.make("CartPoleSwingUpHarder")
    for noise in (0, 10):
        observation, state = world.reset(jax.random.key(4))
        rng = np.random.default_rng(noise)
        carry, theirs = agent.initial_carry(5 + noise), first_carry(session, N=5 + noise)
        for _ in range(150):
            seen = np.append(observation, 0.1 * rng.normal(size=noise)).astype(np.float32)
            action, carry = agent(seen, carry)
            said, theirs, outputs = run(session, seen, theirs)
            # Rounding adds up over the steps, unlike in the check, where both start from one carry
            np.testing.assert_allclose(said, action, atol=0.01)
            assert outputs["attention"].shape == (16, 5 + noise)
            observation, state, *_ = world.step(jax.random.key(0), state, action)


def test_one_file_acts_on_any_number_of_motors(tmp_path):
    """As one uses it; noise and all, for it follows from the seed and the time in the carry."""
    agent = zoo.load("arm-motors")
    written = to_onnx.export(agent, tmp_path / "agent.onnx")
    assert "any number of sensors and acts on any number of motors" in str(written)
    session = open_file(tmp_path / "agent.onnx")
    shapes = {value.name: value.shape for value in session.get_inputs()}
    assert shapes["carry.motors.digest"] == ["2*N", "M"]
    assert shapes["carry.motors.seed"] == ["M"]
    assert session.get_modelmeta().custom_metadata_map["actions"] == "any number"
    for sensors, motors in ((3, 1), (4, 11)):
        policy = agent.policy.with_motors(motors)
        step, carry = eqx.filter_jit(policy), policy.initial_carry(sensors)
        theirs = first_carry(session, **{"N": sensors, "2*N": 2 * sensors, "M": motors})
        for name, leaf in to_onnx._named(carry, "carry").items():
            np.testing.assert_array_equal(theirs[name], leaf)
        for time in range(30):
            seen = np.sin(0.1 * time + np.arange(sensors)).astype(np.float32)
            action, carry = step(seen, carry)
            said, theirs, _ = run(session, seen, theirs)
            np.testing.assert_allclose(said, action, atol=0.01)
        assert np.ptp(carry.motors.digest) > 0.01


def test_the_file_says_what_it_is(tmp_path):
    to_onnx.export(zoo.load("cartpole-pi-best"), tmp_path / "agent.onnx")
    session = open_file(tmp_path / "agent.onnx")
    inputs = {value.name: value.shape for value in session.get_inputs()}
    assert inputs == {
        "observation": ["N"],
        "carry.memory.hidden": [16, "N"],
        "carry.memory.cell": [16, "N"],
        "carry.feedback": [33],
    }
    assert [value.name for value in session.get_outputs()] == [
        "action", "next_carry.memory.hidden", "next_carry.memory.cell", "next_carry.feedback",
        "attention",
    ]  # fmt: skip
    said = session.get_modelmeta().custom_metadata_map
    assert said["agent"] == "cartpole-pi-best"
    assert said["world"] == "CartPoleSwingUpHarder"
    assert json.loads(said["sensor_names"])[2] == "cos angle"
    assert said["sensors"] == "any number"
    assert said["actions"] == "1"
    assert said["parameters"] == "5185"
    assert said["sensorium"] == sensorium.__version__


def test_images_start_with_a_fresh_memory(tmp_path, key):
    policy = VisionAttentionNeuronConfig(num_queries=64).build(IMAGES, 3, key)
    to_onnx.export_policy(policy, IMAGES, tmp_path / "agent.onnx")
    session = open_file(tmp_path / "agent.onnx")
    said = session.get_modelmeta().custom_metadata_map
    assert said["sensors"] == "96 x 96 x 3"
    assert said["hidden_rows"] == "12"
    carry = first_carry(session)
    assert carry["carry.fresh"] == np.True_
    image = np.full(IMAGES, 90, np.uint8)
    image[:, :, 1] = np.arange(96)
    _, carry, outputs = run(session, image, carry)
    assert not carry["carry.fresh"]
    assert outputs["attention"].shape == (64, 256)
    # The first frame fills the whole memory
    np.testing.assert_array_equal(carry["carry.frames"][0], carry["carry.frames"][3])


@pytest.mark.parametrize("name", ["carracing_attention_agent", "carracing_pi", "ant_pi"])
def test_the_authors_agents_can_be_exported(name, tmp_path, reference):
    policy = zoo.read_published(name, reference.path("weights", name))
    spec = 28 if name == "ant_pi" else IMAGES
    written = to_onnx.export_policy(policy, spec, tmp_path / "agent.onnx")
    assert written.difference <= 1


@pytest.mark.parametrize("name", ["carracing-attention-agent", "carracing-cnn"])
def test_an_agent_that_drives(name, tmp_path):
    to_onnx.export(zoo.load(name), tmp_path / "agent.onnx")
    assert open_file(tmp_path / "agent.onnx").get_inputs()[0].shape == list(IMAGES)


def test_patch_importance_is_the_same_as_a_whole(key):
    queries, keys = jax.random.normal(key, (2, 200, 4))
    block = patch_attention.ROWS_AT_A_TIME
    in_blocks = patch_attention.patch_importance(queries, keys)
    with to_onnx._unblocked_attention():
        whole = patch_attention.patch_importance(queries, keys)
        assert patch_attention.ROWS_AT_A_TIME is None
    np.testing.assert_allclose(whole, in_blocks, rtol=1e-5)
    assert block == patch_attention.ROWS_AT_A_TIME


@pytest.mark.parametrize("by", [1e-3, float("nan")])
def test_a_file_that_acts_otherwise_is_not_written(by, tmp_path, key, monkeypatch):
    policy = AttentionNeuronConfig().build(5, 1, key)
    translate = to_onnx._translate

    def wrongly(onnx, policy, *rest):
        wrong = jax.tree.map(lambda leaf: leaf * (1 + by) if eqx_array(leaf) else leaf, policy)
        return translate(onnx, wrong, *rest)

    monkeypatch.setattr(to_onnx, "_translate", wrongly)
    with pytest.raises(ExportError, match="would act otherwise than the agent"):
        to_onnx.export_policy(policy, 5, tmp_path / "agent.onnx")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_translated_is_one_sentence(tmp_path, key, monkeypatch):
    policy = FeedForwardConfig().build(5, 1, key)

    def fail(*_, **__):
        raise NotImplementedError("no plugin for 'magic'")

    monkeypatch.setattr("jax2onnx.to_onnx", fail)
    with pytest.raises(ExportError, match=r"cannot translate FeedForwardPolicy.*magic"):
        to_onnx.export_policy(policy, 5, tmp_path / "agent.onnx")


@pytest.mark.parametrize("package", ["jax2onnx", "onnx", "onnxruntime"])
def test_without_the_extra(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'sensorium\[export\]'"):
        to_onnx.export(zoo.load("cartpole-pi"), tmp_path / "agent.onnx")


def test_where_no_file_can_be(tmp_path, key):
    (tmp_path / "file").touch()
    policy = FeedForwardConfig().build(5, 1, key)
    with pytest.raises(WriteError, match="Could not write"):
        to_onnx.export_policy(policy, 5, tmp_path / "file" / "agent.onnx")
    # A folder that is missing is made, as wherever something is written
    to_onnx.export_policy(policy, 5, tmp_path / "new" / "agent.onnx")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["agent.onnx"]


def test_the_command(tmp_path):
    def export(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "sensorium", "export", *map(str, arguments)],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip

    done = export("cartpole-fnn", "--onnx", tmp_path / "agent.onnx")
    assert done.returncode == 0, done.stderr
    assert "takes exactly 5, its axes are fixed" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "agent.onnx").exists()
    for arguments, sentence in (
        (("cartpole-pie", "--onnx", tmp_path / "a.onnx"), "did you mean 'cartpole-pi'"),
        (("cartpole-pi",), "onnx"),
    ):
        failed = export(*arguments)
        assert failed.returncode == 2
        assert sentence in failed.stderr + failed.stdout
        assert "Traceback" not in failed.stderr
