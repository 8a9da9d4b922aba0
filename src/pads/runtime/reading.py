"""Every file of ours that is read back is held against its shape: what does not fit is refused in one sentence.

A shape is written as the value itself would look:

    int, float, str, bool, dict, None   a value of that type; a whole number is also a float
    [shape]                             a list of these
    {"key": shape, "more?": shape}      a group with this key, and `more` of this shape if it is there; others may be there
    {str: shape}                        a group of any keys
    (shape, shape)                      one or the other
    function                            a value for which it returns True
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pads.errors import UserError

if TYPE_CHECKING:
    import numpy as np

Shape = Any
DEEPEST = 64
"""Groups and lists within each other: nothing that we write comes near, and Python's own limit ends in a traceback."""


class Misfit(ValueError):
    """A value that has not its shape."""


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file to read it: a FIFO would make us wait for ever, and a device need not end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return open(handle, "rb")
    os.close(handle)
    number = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
    raise OSError(number, "is a directory" if stat.S_ISDIR(kind) else "not a regular file", str(path))


def read_regular(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def check_regular(path: Path) -> None:
    """Refuse what is no regular file, for a library that opens it by its name."""
    open_regular(path).close()


def read_json(path: Path, shape: Shape, remedy: str) -> Any:
    """Read a file of JSON, or say that it is damaged and what to do; only one that is missing stays the caller's."""
    try:
        value = parse_json(read_regular(path).decode())
        check_shape(value, shape)
        return value
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise describe_damage(path, error, remedy) from error


def read_json_lines(path: Path, shape: Shape, remedy: str, *, strict: bool = True) -> Iterator[dict[str, Any]]:
    """Read a file of one JSON value a line, if it is there; a last line that is still being written is passed over.

    strict=False: so is every line that does not fit, and what cannot be read at all.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if not strict:
            return
        raise describe_damage(path, error, remedy) from error
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            value = parse_json(line.decode())
            check_shape(value, shape)
        except ValueError as error:
            if strict:
                raise describe_damage(path, Misfit(f"line {number}: {error}"), remedy) from error
            continue
        yield value


def read_array(path: Path, dtype: type[np.generic], num_dims: int, remedy: str, *, mapped: str | None) -> np.ndarray:
    """Read an array that `np.save` would have written, into memory or mapped in this mode."""
    import numpy as np  # late: the command line reads JSON before it knows whether it needs more

    try:
        check_regular(path)
        array = np.load(path, mmap_mode=mapped)  # type: ignore[arg-type]
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != num_dims:
            raise Misfit("another kind of array")
        return array
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy reads its header with Python's own parser, which raises a lot
        raise describe_damage(path, error, remedy) from error


def describe_damage(path: Path, error: Exception, remedy: str) -> UserError:
    why = (str(error) or type(error).__name__).partition("\n")[0][:200].rstrip(".")
    return UserError(f"{path} is damaged ({why}): {remedy}")


def parse_json(text: str) -> Any:
    """Parse JSON that is not nested beyond reason."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise Misfit("nested too deeply") from error
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise Misfit("nested too deeply")
        groups = [each for each in level if isinstance(each, dict | list)]
        level = [item for each in groups for item in (each.values() if isinstance(each, dict) else each)]
        level = [item for item in level if isinstance(item, dict | list)]
    return value


def check_shape(value: Any, shape: Shape, where: str = "") -> None:
    """Raise Misfit, with the place in the value, if it has not this shape."""
    if isinstance(shape, tuple):
        if not any(has_shape(value, each) for each in shape):
            raise Misfit(f"{where or 'it'} is not as it should be")
    elif isinstance(shape, list):
        expect(isinstance(value, list), where, "a list")
        for number, item in enumerate(value):
            check_shape(item, shape[0], f"{where}[{number}]")
    elif isinstance(shape, dict):
        expect(isinstance(value, dict), where, "a group of settings")
        for key, inner in keys_of(shape, value):
            check_shape(value[key], inner, f"{where}.{key}" if where else key)
    elif shape is None:
        expect(value is None, where, "null")
    elif isinstance(shape, type):
        expect(is_of_type(value, shape), where, f"a {shape.__name__}")
    else:
        expect(bool(shape(value)), where, "right")


def keys_of(shape: dict[Any, Shape], value: dict[str, Any]) -> Iterator[tuple[str, Shape]]:
    """Yield each key of a group that has a shape; a needed one that is missing is refused."""
    for key, inner in shape.items():
        if key is str:
            yield from ((each, inner) for each in value)
        elif key.endswith("?"):
            if key[:-1] in value:
                yield key[:-1], inner
        elif key not in value:
            raise Misfit(f"{key} is missing")
        else:
            yield key, inner


def has_shape(value: Any, shape: Shape) -> bool:
    try:
        check_shape(value, shape)
    except Misfit:
        return False
    return True


def expect(is_so: bool, where: str, what: str) -> None:
    if not is_so:
        raise Misfit(f"{where or 'it'} is not {what}")


def is_of_type(value: Any, kind: type) -> bool:
    if kind in (int, float):
        is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
        return is_number and not (isinstance(value, int) and abs(value) >= 2**63)
    return isinstance(value, kind)


def is_file_name(value: Any) -> bool:
    """Tell whether a value names a file in the same folder, and nothing elsewhere."""
    return isinstance(value, str) and Path(value).name == value and value not in ("", ".", "..") and "\0" not in value


def is_positive(value: Any) -> bool:
    return is_of_type(value, int) and value > 0


def is_count(value: Any) -> bool:
    return is_of_type(value, int) and value >= 0
