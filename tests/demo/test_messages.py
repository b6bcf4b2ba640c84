"""Messages of the page are read; everything else is refused with a sentence."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.demo.messages import (
    BACKGROUNDS,
    CHANGES,
    LONGEST_TEXT,
    Controls,
    Message,
    change,
    pack,
    parse,
    unpack,
)
from sensorium.errors import MessageError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
VERBS = st.sampled_from(["set", "shuffle", "reset", "push", "step", "drawn", "ping", "open", ""])
FIELDS = st.sampled_from([*Controls.__dataclass_fields__, "path", "__class__"])


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_or_refused(text):
    try:
        message = parse(text)
    except MessageError:
        return
    assert isinstance(message, Message)


@given(
    VERBS,
    st.dictionaries(st.sampled_from(["id", "changes", "seed", "strength", "frame", "x"]), VALUES),
    st.dictionaries(FIELDS, VALUES, max_size=4),
)
def test_any_object_is_read_or_refused(verb, more, changes):
    said = {"do": verb, **more}
    if "changes" in said:
        said["changes"] = changes
    try:
        message = parse(json.dumps(said))
    except MessageError:
        return
    if message.do == "set":  # what is let through is of the kinds that the rest relies on
        controls = change(Controls(agent="somebody"), message.value)
        assert 0 <= controls.noise <= 50
        assert 1 <= controls.copies <= 3
        assert controls.background in BACKGROUNDS
        assert controls.modify in CHANGES
        assert all(type(place) is int and 0 <= place < 256 for place in controls.hidden)
        assert {type(value) for value in message.value.values()} <= {int, str, tuple, float, bool}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must be a JSON object"),
        ("[" * LONGEST_TEXT, "must be a JSON object"),
        ("x" * (LONGEST_TEXT + 1), "at most 4096 characters"),
        ("[]", "says what to do"),
        ('{"do": "shufle"}', "did you mean 'shuffle'"),
        ('{"do": "shuffle", "now": 1}', "goes with nothing beside its id"),
        ('{"do": "set", "changes": {"nois": 3}}', "did you mean 'noise'"),
        ('{"do": "set", "changes": {"noise": 51}}', "from 0 to 50"),
        ('{"do": "set", "changes": {"noise": true}}', "a whole number"),
        ('{"do": "set", "changes": {"noise": 1e1}}', "a whole number"),
        ('{"do": "set", "changes": {"speed": true}}', "must be one of"),
        ('{"do": "set", "changes": {"background": "/etc/passwd"}}', "must be one of"),
        ('{"do": "set", "changes": {"text": "%s"}}' % ("x" * 25), "at most 24 characters"),
        ('{"do": "set", "changes": {"text": "\\n"}}', "at most 24 characters"),
        ('{"do": "push", "strength": NaN}', "from -1 to 1"),
        ('{"do": "push", "strength": 1e999}', "from -1 to 1"),
        ('{"do": "shuffle", "id": -1}', "'id' must be"),
    ],
)  # fmt: skip
def test_refusals_say_what_is_wrong(text, sentence):
    with pytest.raises(MessageError, match=sentence):
        parse(text)


def test_messages_of_the_page_are_read():
    said = '{"do": "set", "id": 4, "changes": {"noise": 5, "cut": [2, 0, 2], "speed": 2}}'
    assert parse(said) == Message("set", 4, {"noise": 5, "cut": (0, 2), "speed": 2.0})
    assert parse('{"do": "push", "strength": -1}') == Message("push", 0, -1.0)


@given(
    st.lists(st.tuples(st.sampled_from("fbB"), st.lists(st.integers(0, 100), max_size=7)), max_size=5)
)  # fmt: skip
def test_frames_come_back_as_they_went(parts):
    kinds = {"f": np.float32, "b": np.int8, "B": np.uint8}
    arrays = {f"a{i}": np.array(values, kinds[kind]) for i, (kind, values) in enumerate(parts)}
    header, back = unpack(pack({"total": 1.5, "über": "ä"}, arrays))
    assert header == {"total": 1.5, "über": "ä"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
