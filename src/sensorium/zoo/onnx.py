"""Agents for everybody else: one step of a policy as an ONNX file, which runs wherever there is a runtime.

    observation, carry.*  ->  action, next_carry.*, attention

Feed `next_carry.*` back as `carry.*`. The metadata of the file say which agent it is, what it observes and
what each part of its first carry is filled with. Agents of scalar sensors or entities take any number of
them where the policy does: one file, its axis `N` is free. An entity of NaN is absent. Feed-forward agents,
nonlinear attention as published and agents of images have the size that they were exported for. Agents with
motor neurons act on any number of motors: their axis `M` is free.

jax2onnx translates, and onnxruntime then acts side by side with the policy on made-up observations: a file
that does otherwise is not written.
"""

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sensorium
from sensorium.errors import ExportError, needs
from sensorium.layers import patch_attention
from sensorium.policies import Policy, Trace, num_parameters
from sensorium.serialisation import atomic_write, check_writable, format_json
from sensorium.types import (
    ObservationSpec,
    PyTree,
    num_sensors_of,
    shape_of,
    spec_of,
    with_num_sensors,
)
from sensorium.zoo.agent import Agent

TOLERANCE = 1e-4
"""How far any output of a file may be from the policy's, in units of itself where it is larger than 1."""
STEPS = 100
"""How many steps a file is checked for, with each number of sensors."""
_ABSENT = 0.2  # share of entities in a made-up observation
_DRIFT, _JUMPS = 0.05, 0.05  # of made-up readings: size in a step; share of steps that jump
_OPSET, _IR_VERSION = 21, 10  # what onnxruntime has read since 1.20


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    observation_spec: ObservationSpec
    """Scalar sensors, or the shape of entities or images, that the agent was made for."""
    any_number: bool
    """Whether it takes any number of sensors; else exactly those."""
    any_motors: bool
    """Whether it acts on any number of motors."""
    difference: float
    """The largest that the check has seen, in units of `TOLERANCE`."""

    def __str__(self) -> str:
        shape = " x ".join(map(str, shape_of(self.observation_spec)))
        fixed = f"exactly {shape}" if self.any_motors else f"exactly {shape}, its axes are fixed"
        takes = "any number of sensors" if self.any_number else fixed
        acts = " and acts on any number of motors" if self.any_motors else ""
        return (
            f"Wrote {self.path}, which takes {takes}{acts}; onnxruntime acts as the agent does to "
            f"{self.difference * TOLERANCE:.1e} (allowed: {TOLERANCE:g})."
        )


def export(agent: Agent, path: Path | str) -> Exported:
    """Write one step of an agent as an ONNX file, checked against the agent itself.

    Args:
        agent: Any agent.
        path: The file to create or replace, atomically.

    Raises:
        MissingExtraError: jax2onnx or onnxruntime is not installed.
        ExportError: The agent cannot be translated, or the translation acts otherwise.
        WriteError: The file could not be written.
    """
    world = agent.recipe.make_world()
    facts = {
        "agent": agent.name,
        "summary": agent.recipe.summary,
        "world": agent.recipe.env,
    }
    if num_sensors_of(world.raw_observation_spec) is not None:
        facts["sensor_names"] = format_json(world.sensor_names)
    return export_policy(agent.policy, world.observation_spec, path, facts)


def export_policy(
    policy: Policy, spec: ObservationSpec, path: Path | str, facts: dict[str, str] | None = None
) -> Exported:
    """As `export`, of any policy.

    Args:
        policy: The policy; where it acts on any number of motors, so does the file.
        spec: N, or the shape of entities or images; where the policy takes any N, so does the file.
        path: The file to create or replace, atomically.
        facts: More to say in the metadata.

    Raises:
        ConfigError: The policy cannot work with such observations.
    """
    check_writable(path)  # translating takes a while
    onnx, runtime = _libraries()
    policy.initial_carry(spec)
    free = _one_more(policy, spec)
    model = _translate(onnx, policy.without_shortcuts(), spec, free)
    # Of two motors or more, which shows what tells them apart
    wider, _ = free.get("M", (policy, spec))
    first = _named(wider.initial_carry(spec), "carry")
    meta = {
        **(facts or {}),
        "policy": type(policy).__name__,
        "parameters": str(num_parameters(policy)),
        "sensors": "any number" if "N" in free else " x ".join(map(str, shape_of(spec))),
        "actions": "any number" if "M" in free else str(policy.num_actions),
        "hidden_rows": str(policy.hidden_rows),
        "first_carry": format_json({name: _filling(leaf) for name, leaf in first.items()}),
        "sensorium": sensorium.__version__,
    }
    onnx.helper.set_model_props(model, {name: value for name, value in meta.items() if value})
    content = model.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    difference = max(difference_from(session, *size) for size in _sizes(policy, spec, free))
    if not difference <= 1:
        raise ExportError(
            f"The ONNX file would act otherwise than the agent (by {difference * TOLERANCE:.1e}, allowed are "
            f"{TOLERANCE:g}) and was not written."
        )
    with atomic_write(path) as file:
        file.write(content)
    return Exported(Path(path), spec, "N" in free, "M" in free, difference)


def difference_from(
    session: Any, policy: Policy, spec: ObservationSpec, steps: int = STEPS
) -> float:
    """How far an ONNX file acts from a policy, in units of `TOLERANCE`; 1 or less is the same.

    Both take each step of a made-up episode from the same carry, the policy's. Left to themselves they would
    part where the policy is chaotic, as would the policy on another processor. Steps in which rounding
    decides do not count, as where two patches tie for a place among the best: those in which the policy
    itself acts half as far from what it does, or more, once its weights and its carry change by a millionth.

    Args:
        session: An `onnxruntime.InferenceSession`.
        policy: The policy.
        spec: N, or the shape of entities or images.
        steps: How many.
    """
    rng = np.random.default_rng(0)
    carry = policy.initial_carry(spec)
    names = [output.name for output in session.get_outputs()]
    step = eqx.filter_jit(type(policy).step)
    worst = 0.0
    observation = None
    for _ in range(steps):
        observation = _made_up(rng, shape_of(spec), observation)
        before = {name: np.asarray(leaf) for name, leaf in _named(carry, "carry").items()}
        outputs = session.run(names, {"observation": observation, **before})
        result = step(policy, jnp.asarray(observation), carry)
        ours = _outputs(*result)
        apart = _apart([ours[name] for name in names], outputs)
        doubtful = apart > 1 >= worst
        if not (doubtful and _is_rounding(apart, policy, step, observation, carry)):
            worst = max(worst, apart)
        carry = result[1]
    return worst


def _one_more(policy: Policy, spec: ObservationSpec) -> dict[str, tuple[Policy, ObservationSpec]]:
    """Find which numbers are free, N of sensors and M of motors: a policy and observations of one more."""
    count, more = num_sensors_of(spec), {}
    if count is not None and policy.takes(wider := with_num_sensors(spec, count + 1)):
        more["N"] = (policy, wider)
    if not policy.fixed_outputs:
        more["M"] = (policy.with_motors(policy.num_actions + 1), spec)
    return more


def _sizes(
    policy: Policy, spec: ObservationSpec, free: Collection[str]
) -> Iterator[tuple[Policy, ObservationSpec]]:
    """Go through sizes to check: that of the agent; then of what is free one, and more than there were."""
    yield policy, spec
    count, motors = num_sensors_of(spec) or 0, policy.num_actions
    for sensors, acting in ((1, 2 * motors + 1), (2 * count + 1, 1)) if free else ():
        yield (
            policy.with_motors(acting) if "M" in free else policy,
            with_num_sensors(spec, sensors) if "N" in free else spec,
        )


def _is_rounding(
    apart: float, policy: Policy, step: Any, observation: np.ndarray, carry: PyTree
) -> bool:
    """Whether the policy itself acts half as far apart once its weights and carry change by a millionth."""
    rng = np.random.default_rng(0)

    def changed(leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        return leaf * (1 + 1e-6 * rng.choice([-1, 1], leaf.shape).astype(leaf.dtype))

    plain = _outputs(*step(policy, observation, carry)).values()
    for _ in range(16):
        other, before = jax.tree.map(changed, (policy, carry))
        if 2 * _apart(plain, _outputs(*step(other, observation, before)).values()) >= apart:
            return True
    return False


def _apart(ours: Iterable[Any], theirs: Iterable[Any]) -> float:
    """Find the largest difference of two sets of outputs, in units of `TOLERANCE`; NaN is infinite."""
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        mine, other = np.asarray(mine, np.float64), np.asarray(other, np.float64)
        apart = np.abs(mine - other) / np.maximum(1, np.abs(mine)) / TOLERANCE
        worst = max(worst, float(np.max(np.nan_to_num(apart, nan=np.inf), initial=0.0)))
    return worst


def _libraries() -> tuple[Any, Any]:
    """Import onnx and onnxruntime."""
    with needs("export", "Exporting to ONNX"), _quiet():
        import jax2onnx  # noqa: F401
        import onnx
        import onnxruntime
    return onnx, onnxruntime


def _translate(
    onnx: Any,
    policy: Policy,
    spec: ObservationSpec,
    free: dict[str, tuple[Policy, ObservationSpec]],
) -> Any:
    """Translate a policy to a model whose inputs and outputs have readable names."""
    from jax2onnx import to_onnx

    carry = policy.initial_carry(spec)
    leaves, structure = jax.tree.flatten(carry)
    names: list[str] = []

    def step(observation: Any, *leaves: Any) -> tuple[Any, ...]:
        outputs = _outputs(*policy.step(observation, jax.tree.unflatten(structure, leaves)))
        names[:] = outputs
        # An output may stand in the inputs or in the carry too, and each needs a node of its own
        values = [observation, *leaves, *outputs.values()]
        ids = [id(value) for value in values]
        return tuple(
            values[place] * 1 if ids[place] in ids[:place] else values[place]
            for place in range(1 + len(leaves), len(values))
        )

    kinds = [jnp.uint8 if num_sensors_of(spec) is None else jnp.float32]
    kinds += [leaf.dtype for leaf in leaves]
    shapes = _shapes(policy, spec)
    for name, wider in free.items():
        shapes = [
            _with_free_axis(name, *pair) for pair in zip(shapes, _shapes(*wider), strict=True)
        ]
    inputs = [jax.ShapeDtypeStruct(*each) for each in zip(shapes, kinds, strict=True)]
    try:
        with _quiet(), _unblocked_attention():
            model = to_onnx(
                step,
                inputs,
                model_name="sensorium",
                opset=_OPSET,
                input_names=["observation", *_named(carry, "carry")],
            )
    except Exception as error:
        raise ExportError(
            f"jax2onnx cannot translate {type(policy).__name__}: {type(error).__name__}: {error}."
        ) from error
    model.ir_version = _IR_VERSION
    _name_outputs(onnx, model.graph, names)
    del model.graph.value_info[
        :
    ]  # what jax2onnx notes of shapes in between is wrong where it broadcasts
    onnx.checker.check_model(model)
    return model


def _name_outputs(onnx: Any, graph: Any, names: list[str]) -> None:
    """Name what a graph gives.

    A value that is two outputs, such as an action that is also remembered, is handed on for the second; not
    for all, since onnxruntime 1.31 loses track of some values that are.
    """
    final: dict[str, str] = {}
    for output, name in zip(graph.output, names, strict=True):
        if output.name in final:
            graph.node.append(onnx.helper.make_node("Identity", [final[output.name]], [name]))
        final.setdefault(output.name, name)
        output.name = name
    for node in graph.node:
        node.input[:] = [final.get(value, value) for value in node.input]
        node.output[:] = [final.get(value, value) for value in node.output]


def _shapes(policy: Policy, spec: ObservationSpec) -> list[tuple[Any, ...]]:
    """Find the shapes of observation and carry."""
    return [shape_of(spec), *map(jnp.shape, jax.tree.leaves(policy.initial_carry(spec)))]


def _with_free_axis(name: str, shape: tuple[Any, ...], wider: tuple[int, ...]) -> tuple[Any, ...]:
    """Name the axes that are longer once a number is larger by one: N, or 2*N where there are two of each."""

    def named(size: Any, more: int) -> Any:
        if isinstance(size, str) or size == more:
            return size
        return name if more == size + 1 else f"{more - size}*{name}"

    return tuple(named(*pair) for pair in zip(shape, wider, strict=True))


def _outputs(action: Any, carry: PyTree, trace: Trace) -> dict[str, Any]:
    """All that a step gives, by name."""
    outputs = {"action": action, **_named(carry, "next_carry")}
    return outputs if trace.attention is None else {**outputs, "attention": trace.attention}


def _named(carry: PyTree, root: str) -> dict[str, Any]:
    """Parts of a carry by their path, such as `carry.memory.hidden`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(carry)
    return {root + jax.tree_util.keystr(path): leaf for path, leaf in paths}


def _filling(leaf: Any) -> Any:
    """Read the one value that a part of a first carry is filled with; or that it counts from 0 on."""
    if np.ndim(leaf) == 1 and len(leaf) > 1 and np.array_equal(leaf, np.arange(len(leaf))):
        return "arange"
    (value,) = np.unique(np.asarray(leaf)).tolist() or (0.0,)
    return value


def _made_up(
    rng: np.random.Generator, shape: tuple[int, ...], before: np.ndarray | None
) -> np.ndarray:
    """Draw readings, entities, some absent, or noise with rectangles, where some patches stand out.

    Readings drift from those `before`, and jump now and then, as in a world; what jumps all the time makes
    nonsense of what motor neurons learn, and equations that only rounding decides.
    """
    if num_sensors_of(spec_of(shape)) is not None:
        readings = rng.normal(size=shape).astype(np.float32)
        if readings.ndim == 1 and before is not None and rng.random() > _JUMPS:
            readings = before + np.float32(_DRIFT) * readings
        if readings.ndim == 2:
            readings[rng.random(len(readings)) < _ABSENT] = np.nan
        return readings
    image = rng.integers(0, 64, shape)
    for _ in range(6):
        top, left = rng.integers(0, shape[0]), rng.integers(0, shape[1])
        high, wide = rng.integers(4, 32, 2)
        image[top : top + high, left : left + wide] += rng.integers(0, 191, shape[2])
    image = np.clip(image, 0, 255)
    if shape[2] == 3:
        # Greys that are nearly whole numbers would be rounded up here and down there
        near = np.abs((image @ (299, 587, 114) + 500) % 1000 - 500) < 50
        image[..., 2] ^= near
    return image.astype(np.uint8)


@contextlib.contextmanager
def _unblocked_attention() -> Iterator[None]:
    """Votes without their loop over blocks of rows, which jax2onnx cannot follow into what it closes over."""
    rows, patch_attention.ROWS_AT_A_TIME = patch_attention.ROWS_AT_A_TIME, None
    try:
        yield
    finally:
        patch_attention.ROWS_AT_A_TIME = rows


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without jax2onnx's remarks on what it does not use, and on what JAX is about to rename."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logging.disable(before)
