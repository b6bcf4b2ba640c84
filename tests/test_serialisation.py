"""Files: what is written where, and what JSON may hold."""

import contextlib
import json
import math
import os
import stat
import threading

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.errors import AgentFileError, WriteError
from sensorium.serialisation import (
    atomic_folder,
    atomic_write,
    check_writable,
    format_json,
    load_pytree,
    parse_json,
    read_header,
    save_pytree,
    write_json,
)


def put(path, content=b"new"):
    with atomic_write(path) as file:
        file.write(content)


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    target = tmp_path / "far/file"
    target.write_bytes(b"old")
    (tmp_path / "link").symlink_to("far/file")
    (tmp_path / "chain").symlink_to("link")
    (tmp_path / "dangling").symlink_to("far/new")
    put(tmp_path / "chain")
    put(tmp_path / "dangling")
    assert target.read_bytes() == (tmp_path / "far/new").read_bytes() == b"new"
    assert all((tmp_path / name).is_symlink() for name in ("link", "chain", "dangling"))
    assert sorted(os.listdir(tmp_path / "far")) == ["file", "new"]


def test_a_pipe_and_a_device_are_written_to_and_stay_what_they_are(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with atomic_write(pipe) as file:
        file.write(b"-ew")
        file.seek(0)  # as writers of images do
        file.write(b"n")
    reader.join()
    assert read == [b"new"]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    (tmp_path / "null").symlink_to("/dev/null")
    put(tmp_path / "null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["null", "pipe"]


def test_the_file_that_output_goes_to_is_not_replaced(tmp_path, monkeypatch):
    log = tmp_path / "log"
    log.write_bytes(b"first ")
    here = os.stat(log)
    monkeypatch.setattr("sensorium.serialisation.os.fstat", lambda descriptor: here)
    put(log)
    assert log.read_bytes() == b"first new"
    assert os.path.samestat(os.stat(log), here)


def test_a_replaced_file_keeps_its_mode_and_a_new_one_has_that_of_the_umask(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"")
    old.chmod(0o640)
    put(old)
    before = os.umask(0o027)
    put(new)
    os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (old, new)] == [0o640, 0o640]
    put(tmp_path / ("n" * 250))  # a name may have 255 bytes


def test_places_that_cannot_be_written_get_a_sentence(tmp_path, monkeypatch):
    import socket

    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "astray").symlink_to("file/below")
    (tmp_path / "locked").write_text("")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda p, m: "locked" not in str(p) and allowed(p, m))
    before = sorted(os.listdir())
    for path, reason in (
        ("", "not the name of a file"),
        ("nul\0", "not the name of a file"),
        (".", "a folder"),
        ("folder", "a folder"),
        ("new/", "a folder"),
        ("file/below", "Not a directory"),
        ("file/far/below", "Not a directory"),
        ("astray", "Not a directory"),
        ("loop", "symbolic links"),
        ("socket", "a socket"),
        ("locked", "permission"),
        ("n" * 300, "too long"),
    ):
        for attempt in (put, check_writable):
            with pytest.raises(WriteError, match="Could not write") as caught:
                attempt(path)
            assert reason in str(caught.value), path
    with pytest.raises(WriteError, match="/dev/full: No space left"):
        put("/dev/full")
    check_writable("file")
    check_writable("new/folder/file")
    assert sorted(os.listdir()) == before


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_json_is_that_of_the_standard(value):
    def without(value):
        if isinstance(value, dict):
            return {name: without(each) for name, each in value.items()}
        if isinstance(value, list):
            return [without(each) for each in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    text = format_json(value)
    strict = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    assert strict == parse_json(text) == parse_json(text.encode()) == without(value)


def test_json_of_arrays_and_of_headers(tmp_path):
    figures = {"a": np.float32(0.5), "b": np.array([1.0, np.nan]), "c": (1, -np.inf)}
    known = {"a": 0.5, "b": [1.0, None], "c": [1, None]}
    write_json(tmp_path / "a.json", figures)
    assert json.loads((tmp_path / "a.json").read_text()) == known
    save_pytree(tmp_path / "a.safetensors", {}, figures)
    assert read_header(tmp_path / "a.safetensors") == known


@given(st.binary())
def test_any_bytes_are_json_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        parse_json(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": 1, "b": 2, "a": 1}', "names 'a' twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "limit"),
    ],
)
def test_what_is_no_json_says_why(data, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(data)
    assert parse_json(b'\xef\xbb\xbf{"a": [NaN, -Infinity, 1e999]}') == {"a": [None] * 3}


def test_a_damaged_header_and_another_precision(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "a.safetensors"
    for text in ("{", "3", '{"a": 1, "a": 2}'):
        save_file({}, path, metadata={"sensorium": text})
        with pytest.raises(AgentFileError, match="damaged header"):
            read_header(path)
    save_pytree(path, {"a": np.zeros(3, np.float32), "b": np.zeros(2, np.int32)}, {})
    expected = "float32, expected float64: the precision differs .JAX_ENABLE_X64 is on"
    with jax.enable_x64(True), pytest.raises(AgentFileError, match=expected):
        load_pytree(path, {"a": np.zeros(3, np.float64), "b": np.zeros(2, np.int32)})
    with pytest.raises(
        AgentFileError, match="int32, expected float32: they are numbers of another"
    ):
        load_pytree(path, {"a": np.zeros(3, np.float32), "b": np.zeros(2, np.float32)})


def test_a_folder_with_something_in_it_is_replaced_only_if_asked(tmp_path):
    place = tmp_path / "new" / "folder"
    for text, options in (("first", {}), ("second", {"replace": True})):
        with atomic_folder(place, **options) as filled:
            (filled / "file").write_text(text)
        assert (place / "file").read_text() == text
    with (
        pytest.raises(WriteError, match=r"folder: Directory not empty"),
        atomic_folder(place) as filled,
    ):
        (filled / "file").write_text("third")
    with pytest.raises(WriteError, match="Not a directory"), atomic_folder(place / "file" / "in"):
        pass
    assert (place / "file").read_text() == "second"
    assert os.listdir(place.parent) == ["folder"]
