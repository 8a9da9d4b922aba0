"""Every change on a disk goes through one module, and that module keeps its promises."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pads
from pads.errors import UserError
from pads.runtime import files

SOURCE = Path(pads.__file__).parent
MODULE = "runtime/files.py"

# -- no other module writes --------------------------------------------------------------------------------------------

METHODS = frozenset(
    [
        "write_text",
        "write_bytes",
        "touch",
        "mkdir",
        "makedirs",
        "unlink",
        "rmdir",
        "symlink_to",
        "hardlink_to",
        "rename",
        "renames",
        "rmtree",
        "copyfile",
        "copyfileobj",
        "copytree",
        "copy2",
        "move",
        "make_archive",
        "unpack_archive",
        "tofile",
        "memmap",
        "open_memmap",
        "savetxt",
        "savez_compressed",
        "save_file",
        "save_model",
        "dump",
        "to_csv",
        "flock",
        "lockf",
        "truncate",
        "ftruncate",
        "mkfifo",
        "mkdtemp",
        "NamedTemporaryFile",
        "TemporaryFile",
        "fdopen",
    ]
)
"""Whatever they are called on."""
OF_OS = frozenset(
    [
        "open",
        "write",
        "pwrite",
        "replace",
        "remove",
        "removedirs",
        "link",
        "symlink",
        "mknod",
        "chmod",
        "chown",
        "utime",
    ]
)
SAVING = frozenset({"save", "savez", "savefig"})
"""Good with a file that this module has opened, or with memory."""
NOT_TO_A_DISK = {
    "safetensors.torch.save": "gives bytes",
    "pending.save": "our own, of search/index.py",
}
BY_THEMSELVES = {
    ("cli.py", "os.open"): "of /dev/null",
    ("runtime/reading.py", "os.open"): "to read",
    ("search/search.py", "tempfile.mkstemp"): "a new file of the user's own",
    ("networks/weights.py", "torch.hub.download_url_to_file"): "into torch's cache",
    ("networks/timm_models.py", "torch.hub.download_url_to_file"): "into torch's cache",
    ("runs/hub.py", "snapshot_download"): "into the Hub's cache",
    ("display.py", "SummaryWriter"): "TensorBoard's own format",
}
"""What writes without this module, where, and why it may."""
FOREIGN = frozenset(name.rpartition(".")[2] for _, name in BY_THEMSELVES)


def writes_of(tree: ast.AST, file: str) -> Iterator[str]:
    """Each call that changes something on a disk by itself."""
    opened = {name for node in ast.walk(tree) for name in opened_by(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            is_known = any(path == file and f".{name}".endswith(f".{known}") for path, known in BY_THEMSELVES)
            if is_write(node, name, opened) and not is_known:
                yield f"{file}:{node.lineno} {name}"
        elif isinstance(node, ast.ImportFrom) and node.module == "safetensors.torch":
            yield f"{file}:{node.lineno} {node.module}"


def opened_by(node: ast.AST) -> list[str]:
    """Names of files that `writing` opened, or that are memory."""
    if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
        made = node.context_expr
        return [node.optional_vars.id] if isinstance(made, ast.Call) and dotted(made.func) == "writing" else []
    if (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and dotted(node.value.func).endswith("BytesIO")
    ):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def is_write(call: ast.Call, name: str, opened: set[str]) -> bool:
    owner, _, last = name.rpartition(".")
    if last in SAVING and owner:
        is_ours = any(isinstance(argument, ast.Name) and argument.id in opened for argument in call.args)
        return not is_ours and name not in NOT_TO_A_DISK
    if last == "open" and owner != "os":
        modes = [*call.args[0 if owner else 1 :][:1], *(word.value for word in call.keywords if word.arg == "mode")]
        return any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax+") for mode in modes)
    if last == "replace" and owner and owner != "os":
        return len(call.args) == 1 and not call.keywords  # of a path; of a text it takes two
    if last == "save_file" and not owner:
        return False  # our own, of model.py
    return last in METHODS or (owner == "os" and last in OF_OS) or last in FOREIGN or name == "shutil.copy"


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "()"


def test_nothing_else_in_the_package_writes():
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        if file != MODULE:
            found += writes_of(ast.parse(path.read_text()), file)
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "open(path, 'w')",
        "open(path, mode='ab')",
        "path.open('r+b')",
        "path.write_text(text)",
        "path.write_bytes(content)",
        "np.save(path, array)",
        "np.save(file, array)",
        "np.savez(path, a=array)",
        "array.tofile(path)",
        "np.lib.format.open_memmap(path, mode='w+')",
        "np.memmap(path, mode='r+')",
        "torch.save(state, path)",
        "safetensors.torch.save_file(tensors, path)",
        "image.save(path)",
        "figure.savefig(path)",
        "shutil.copy(one, other)",
        "shutil.copytree(one, other)",
        "os.replace(one, other)",
        "os.open(path, os.O_WRONLY)",
        "part.replace(path)",
        "json.dump(value, file)",
        "fcntl.flock(file, fcntl.LOCK_EX)",
    ],
)
def test_a_write_elsewhere_would_be_found(line):
    assert list(writes_of(ast.parse(line), "somewhere.py")) == [f"somewhere.py:1 {line.partition('(')[0]}"]


@pytest.mark.parametrize(
    "text",
    [
        "open(path)",
        "open(path, 'rb')",
        "path.open(encoding='utf-8')",
        "text.replace('a', 'b')",
        "replace(config, data=data)",
        "out = BytesIO()\nimage.save(out, 'PNG')",
        "with writing(path) as file:\n    np.savez(file, a=array)",
    ],
)
def test_reading_and_memory_are_not_taken_for_writing(text):
    assert list(writes_of(ast.parse(text), "somewhere.py")) == []


# -- whole or not at all -----------------------------------------------------------------------------------------------


def test_whoever_looks_at_any_moment_sees_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    path, seen, order = tmp_path / "file", [], []
    path.write_bytes(b"old")
    for name in ("open", "fsync", "replace", "close"):
        real = getattr(os, name)

        def looking(*arguments, name=name, real=real, **options):
            seen.append(path.read_bytes())
            order.append("fsync folder" if name == "fsync" and is_folder(arguments[0]) else name)
            result = real(*arguments, **options)
            seen.append(path.read_bytes())
            return result

        monkeypatch.setattr(files.os, name, looking)
    files.write_atomically(path, b"new" * 100_000)
    monkeypatch.undo()
    assert set(seen) == {b"old", b"new" * 100_000}
    steps = [step for step in order if step in ("fsync", "replace", "fsync folder")]
    assert steps == ["fsync", "replace", "fsync folder"]
    assert os.listdir(tmp_path) == ["file"]


def is_folder(handle: int) -> bool:
    return os.path.isdir(f"/proc/self/fd/{handle}")


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyError), files.writing(tmp_path / "file") as file:
        file.write(b"new")
        raise KeyError
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_two_processes_that_write_the_same_file_do_not_mix(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(UserError, match="another process"), files.writing(path) as file:
        file.write(b"first")
        files.write_atomically(path, b"second")
        (tmp_path / "file.partial").write_bytes(b"half")
    assert path.read_bytes() == b"second"


def test_arrays_have_the_bytes_of_numpy(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for given in (array, array[:0], array.T, array.astype(np.uint8)):
        np.save(tmp_path / "theirs.npy", np.ascontiguousarray(given))
        files.write_array(tmp_path / "ours.npy", given)
        assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    np.lib.format.open_memmap(tmp_path / "theirs.npy", "w+", np.uint8, (5, 3, 7)).flush()
    files.make_array(tmp_path / "ours.npy", (5, 3, 7), np.uint8)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "outside"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"


@pytest.mark.parametrize("link", ["file", "file.partial"])
def test_a_file_is_not_written_through_a_link(tmp_path, outside, link):
    (tmp_path / link).symlink_to(outside)
    files.write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new" and not (tmp_path / "file").is_symlink()
    files.write_array(tmp_path / "file", np.zeros(3))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: files.open_to_append(path),
        lambda path: files.overwrite(path, 0, b"bad"),
        lambda path: files.cut(path, 1),
        lambda path: files.hold_lock(path, "another"),
        lambda path: files.make_inner_folder(path),
    ],
)
@pytest.mark.parametrize("kind", ["link", "dangling", "fifo"])
def test_what_is_changed_in_its_place_is_refused_if_it_is_no_plain_file(tmp_path, outside, change, kind):
    path = tmp_path / "file"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(outside if kind == "link" else tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"could not be written"):
        change(path)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: files.open_to_append(path),
        lambda path: files.overwrite(path, 0, b"bad"),
        lambda path: files.cut(path, 1),
    ],
)
def test_what_is_changed_in_its_place_is_refused_if_it_has_a_second_name(tmp_path, outside, change):
    os.link(outside, tmp_path / "file")
    with pytest.raises(UserError, match="has a second name"):
        change(tmp_path / "file")
    files.write_atomically(tmp_path / "file", "new")  # which takes the name, and leaves the file
    files.hold_lock(tmp_path / "file", "another").close()


def test_a_lock_is_not_emptied_and_holds(tmp_path):
    (tmp_path / "lock").write_text("precious")
    with (
        files.hold_lock(tmp_path / "lock", "another"),
        pytest.raises(UserError, match="another has it"),
    ):
        files.hold_lock(tmp_path / "lock", "another has it")
    assert (tmp_path / "lock").read_text() == "precious"
    files.hold_lock(tmp_path / "lock", "another").close()


def test_of_a_link_the_link_alone_is_removed(tmp_path, outside):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    files.remove_folder(tmp_path / "link")
    assert (tmp_path / "folder" / "file").exists() and not (tmp_path / "link").is_symlink()
    (tmp_path / "link").symlink_to(outside)
    files.remove_file(tmp_path / "link")


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space"), OSError("4096 requested and 1024 written")])
def test_a_full_disk_is_seen_as_one(tmp_path, error):
    with pytest.raises(UserError, match=r"the disk is full.*run the same command again"), files.writing(tmp_path / "f"):
        raise error
    assert os.listdir(tmp_path) == []


def test_an_array_that_does_not_fit_is_a_full_disk(tmp_path):
    code = (
        "import numpy as np, pathlib, sys\n"
        "from pads.runtime.files import write_array\n"
        "write_array(pathlib.Path(sys.argv[1]), np.zeros(10**6))"
    )
    command = ["bash", "-c", 'ulimit -f 100; exec "$0" -c "$1" "$2"', sys.executable, code, tmp_path / "a.npy"]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    assert "NotWritten: the disk is full" in said
    assert os.listdir(tmp_path) == []
