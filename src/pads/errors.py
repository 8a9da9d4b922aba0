"""The one error a person can mend: its message is a sentence that says what to do."""


class UserError(ValueError):
    """Say in one sentence what the user should mend; the command line prints it without a traceback, on one line."""

    def __str__(self) -> str:
        return one_line(super().__str__())


def one_line(text: str) -> str:
    """Write out what would break a line or cannot be printed, such as a newline in the name of a file."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def missing_extra(package: str, extra: str) -> UserError:
    """The answer to an optional dependency that is not installed."""
    return UserError(f'{package} is not installed; install it with: pip install "pads-dml[{extra}]"')
