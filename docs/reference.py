"""The reference pages of the site, written from docstrings, from the options of Config and from the parser of the command line.

A page says `<!-- generated: names of pads -->`; `fill` puts the text there when the site is built. A public name, an option
or a command that has no docstring, or one that is no plain sentence, ends the build: see `Gaps`.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import pads
from pads.cli import make_parser

NO_VERB = re.compile(
    r"(An?|The|This|That|What|Whether|Where|Which|Who|How|When|If|Of|For|In|On|By|To|From|With|As|One|Each|Every|All|Its|Their)\b"
)
"""Words that a docstring may not begin with: it begins with a verb."""

ORDER = "train model search evaluate metrics losses sampling curricula"
"""The homes of public names in the order of the page; others follow by name."""


class Gaps(Exception):
    """Names what has no docstring, or one that is no sentence."""


def fill(text: str) -> str:
    """Replace every `<!-- generated: ... -->` of a page by what it names."""
    return re.sub(r"<!-- generated: (.+) -->", lambda found: "\n".join(GENERATED[found[1]]()), text)


def require(described: dict[str, str]) -> None:
    """Raise `Gaps` for all that is not described by a sentence that begins with a verb."""
    gaps = [
        f"{name}: {text.splitlines()[0] if text else 'no docstring'}"
        for name, text in described.items()
        if not is_plain(text)
    ]
    if gaps:
        raise Gaps("write a sentence that begins with a verb and ends with a full stop for\n  " + "\n  ".join(gaps))


def is_plain(text: str) -> bool:
    """Return whether a docstring begins with a sentence: a capital letter, no article or the like, a full stop."""
    first = next(iter(split_docstring(text)), "")
    return first[:1].isupper() and not NO_VERB.match(first) and first.endswith((".", ":"))


# -- names ---------------------------------------------------------------------------------------------------------------


def describe_names(module: types.ModuleType) -> list[str]:
    """Return an entry for every name of `module.__all__`, under the folder or file that it comes from."""
    lines, described, homes = [], {}, module._HOMES
    for home in sorted(set(homes.values()), key=lambda home: (home not in ORDER, ORDER.find(home), home)):
        lines += [f"## {home.rpartition('.')[2].capitalize()}", ""] if module is pads else []
        for name in sorted((name for name in module.__all__ if homes[name] == home), key=str.isupper):
            path, value = f"{module.__name__}.{name}", getattr(module, name)
            if isinstance(value, dict):
                described[path] = read_below(importlib.import_module(f"{module.__name__}.{home}"), name)
                lines += write_registry(path, value, described[path])
            else:
                members = list_members(value)
                described[path] = read_docstring(value)
                described |= {f"{path}.{name}": inspect.getdoc(member) or "" for name, member in members.items()}
                lines += write_entry(path, value, members)
    require(described)
    return lines


def read_docstring(value: Any) -> str:
    """Return the docstring that somebody wrote; dataclasses and named tuples make one of their own."""
    text = inspect.cleandoc(vars(value).get("__doc__") or "") if inspect.isclass(value) else inspect.getdoc(value) or ""
    return "" if text.startswith(f"{value.__name__}(") else text


def list_members(kind: type) -> dict[str, Any]:
    """Return the public methods and properties that a class defines; a function has none.

    A method of another library's interface, such as `forward`, is left out unless it has a docstring of its own.
    """
    members: dict[str, Any] = {}
    for name, value in vars(kind).items() if inspect.isclass(kind) else ():
        function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        strangers = [base for base in kind.__mro__[1:] if not base.__module__.startswith("pads.")]
        if function.__doc__ or not any(name in vars(base) for base in strangers):
            members[name] = value
    return members


def write_entry(path: str, value: Any, members: dict[str, Any]) -> list[str]:
    """Return the entry of a class or a function."""
    lines = [f"::::{{py:{name_kind(value)}}} {path}{write_signature(value)}", *write_docstring(read_docstring(value))]
    if inspect.isclass(value) and "__init__" in vars(value) and value.__init__.__doc__:
        lines += ["", *write_docstring(inspect.getdoc(value.__init__) or "")]
    if value is pads.Config:
        lines.append("[Every option](reference-options.md)")
    elif dataclasses.is_dataclass(value):
        lines += [f"- `{name}`: {' '.join(text.split())}" for name, text in read_fields(value).items() if text]
    for name, member in members.items():
        lines += ["", f":::{{py:{name_kind(member)}}} {path}.{name}{write_signature(member)}"]
        lines += [":classmethod:", ""] if isinstance(member, classmethod) else []
        lines += [*write_docstring(inspect.getdoc(member) or ""), ":::"]
    return [*lines, "::::", ""]


def name_kind(value: Any) -> str:
    """Return what Sphinx calls such a value."""
    if inspect.isclass(value):
        return "exception" if issubclass(value, Exception) else "class"
    if isinstance(value, property):
        return "property"
    return "function" if inspect.isfunction(value) and "." not in value.__qualname__ else "method"


def write_signature(value: Any) -> str:
    """Return the arguments as they are written in the source, without `self`."""
    if name_kind(value) in ("exception", "property") or value is pads.Config:  # its options have a page of their own
        return ""
    signature = inspect.signature(getattr(value, "__func__", value))
    parameters = list(signature.parameters.values())[name_kind(value) == "method" :]
    result = signature.return_annotation
    if inspect.isclass(value) or result in (None, "None"):
        result = inspect.Signature.empty
    written = str(signature.replace(parameters=parameters, return_annotation=result))
    return re.sub(r"(: |-> )(?:ForwardRef\()?'([^']*)'\)?", r"\1\2", written).replace("<factory>", "{}")


def split_docstring(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring; a line such as `rho: a share.` begins one of its own."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if block and (not line or is_argument(line)):
            yield " ".join(block)
            block = []
        block += [line.strip()] if line else []


def is_argument(line: str) -> bool:
    return re.match(r"[a-z_]+(, [a-z_]+)*: ", line) is not None


def write_docstring(text: str) -> list[str]:
    """Return a docstring as Markdown, with its arguments as a list."""
    lines: list[str] = []
    for block in split_docstring(text):
        names, _, rest = block.partition(": ")
        lines.append(f"- `{names}`: {rest}" if is_argument(block) else f"\n{block}\n")
    return [*lines, ""]


# -- parts ---------------------------------------------------------------------------------------------------------------


def read_below(module: types.ModuleType, name: str) -> str:
    """Return the string that stands under the definition of a variable, in the module that defines it."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ImportFrom) and name in [alias.name for alias in statement.names]:
            return read_below(importlib.import_module(statement.module), name)
        if name in names_set(statement) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return inspect.cleandoc(str(below.value.value))
    return ""


def names_set(statement: ast.stmt) -> list[str]:
    """Return the plain names that an assignment sets."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def write_registry(path: str, registry: dict[str, Any], text: str) -> list[str]:
    """Return the entry of a dict of parts: each part with what it is and its options."""
    rows = [("name", "what it is", "options"), ("---", "---", "---")]
    for name, part in registry.items():
        what = next(split_docstring(read_docstring(inspect.unwrap(part))), "")
        rows.append((f"`{name}`", what, ", ".join(f"`{option}`" for option in write_options(part))))
    filled = [column for column in zip(*rows, strict=True) if any(column[2:])]
    table = [f"| {' | '.join(map(in_a_cell, row))} |" for row in zip(*filled, strict=True)]
    return [f"::::{{py:data}} {path}", text, "", *table, "::::", ""]


def write_options(part: Any) -> Iterator[str]:
    """Yield the keyword arguments of a part with their defaults, as they stand in a config."""
    for parameter in inspect.signature(part).parameters.values():
        if parameter.default is not parameter.empty:
            yield f"{parameter.name}={write_value(parameter.default)}"


def write_value(value: Any) -> str:
    """Return a default as one would write it after `--set key=`."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(write_value, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


# -- options of Config ---------------------------------------------------------------------------------------------------


def describe_options(kind: type, prefix: str = "") -> list[str]:
    """Return a table of the options of a config, and after it one for every group of options in it."""
    texts, rows, groups = read_fields(kind), [], []
    for field in dataclasses.fields(kind):
        key = prefix + field.name
        if dataclasses.is_dataclass(field.default) and not isinstance(field.default, pads.Part):
            group = type(field.default)
            texts[field.name] = read_docstring(group)
            groups += ["", f"## `{key}`", "", texts[field.name], "", *describe_options(group, f"{key}.")]
        else:
            cells = f"`{key}`", f"`{field.type}`", write_default(field), texts[field.name]
            rows.append(f"| {' | '.join(map(in_a_cell, cells))} |")
    require({prefix + name: text for name, text in texts.items()})
    return ["| option | type | default | |", "|---|---|---|---|", *rows, *groups]


def write_default(field: dataclasses.Field[Any]) -> str:
    """Return the default of an option; that of a part is its name."""
    if field.default is dataclasses.MISSING or field.default == "":
        return ""
    return f"`{field.default.name if isinstance(field.default, pads.Part) else write_value(field.default)}`"


def read_fields(kind: type) -> dict[str, str]:
    """Return the strings that stand under the fields of a dataclass; those without one are empty."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    texts = dict.fromkeys((field.name for field in dataclasses.fields(kind)), "")
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            texts |= {name: inspect.cleandoc(below.value.value) for name in names_set(statement) if name in texts}
    return texts


# -- commands ------------------------------------------------------------------------------------------------------------


def describe_commands(parser: argparse.ArgumentParser) -> list[str]:
    """Return a section for every command: its usage, what it does, every argument."""
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    lines, described = [], {}
    for name, command in commands.choices.items():
        described[f"pads {name}"] = command.description or ""
        arguments = [action for action in command._actions if action.dest != "help"]
        silent = [f"pads {name} {write_argument(action)}" for action in arguments if not action.help]
        described |= dict.fromkeys(silent, "")
        usage = textwrap.dedent(command.format_usage().replace("usage: ", " " * len("usage: "))).rstrip()
        lines += ["", f"## pads {name}", "", command.description or "", "", "```text", usage, "```", ""]
        lines += ["| argument | |", "|---|---|"]
        lines += [
            f"| `{in_a_cell(write_argument(action))}` | {in_a_cell(write_help(action))} |" for action in arguments
        ]
        lines += ["", "```bash", *map(str.strip, command.epilog.splitlines()[1:]), "```"] if command.epilog else []
    require(described)
    return lines


def write_argument(action: argparse.Action) -> str:
    """Return an argument as one types it."""
    name = ", ".join(action.option_strings) or action.metavar or action.dest
    if not action.option_strings or action.nargs == 0:
        return str(name)
    return f"{name} {'|'.join(map(str, action.choices)) if action.choices else action.metavar or action.dest.upper()}"


def write_help(action: argparse.Action) -> str:
    return (action.help or "").replace("%(default)s", str(action.default))


def public_adapters() -> types.ModuleType:
    return importlib.import_module("pads.adapters")


GENERATED = {
    "names of pads": lambda: describe_names(pads),
    "names of pads.adapters": lambda: describe_names(public_adapters()),
    "options of Config": lambda: describe_options(pads.Config),
    "commands": lambda: describe_commands(make_parser()),
}
