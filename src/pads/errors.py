"""The one error a person can mend: its message is a sentence that says what to do."""

BEGINNING, END = 1000, 500
"""Letters of a message that are shown, however long what it quotes is; the end says what to do."""


class UserError(ValueError):
    """A mistake in what was asked for or given. The command line prints it without a traceback, on one line."""

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > BEGINNING + END:
            text = f"{text[:BEGINNING]} ... {text[-END:]}"
        return one_line(text)


def one_line(text: str) -> str:
    """Write out what would break a line or cannot be printed, such as a newline in the name of a file."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def missing_extra(package: str, extra: str) -> UserError:
    """The answer to an optional dependency that is not installed."""
    return UserError(f'{package} is not installed; install it with: pip install "pads-dml[{extra}]"')
