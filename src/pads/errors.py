"""The one error a person can mend: its message is a sentence that says what to do."""


class UserError(ValueError):
    """Say in one sentence what the user should mend; the command line prints it without a traceback."""


def missing_extra(package: str, extra: str) -> UserError:
    """The answer to an optional dependency that is not installed."""
    return UserError(f'{package} is not installed; install it with: pip install "pads-dml[{extra}]"')
