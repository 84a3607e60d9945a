"""What Spillway raises. The message says what is wrong, with the numbers, and what to do."""


class Error(Exception):
    """The base of all errors of Spillway."""


class ConfigError(Error, ValueError):
    """A value is wrong."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        #: Its name, such as "train.batch_size".
        self.field = field


class DoesNotFit(Error, MemoryError):
    """A trial fits no device of the session, or not the host, under any schedule."""

    def __init__(
        self, message: str, smallest_budget: int = 0, budget: int = 0, tier: str = "device"
    ) -> None:
        super().__init__(message)
        #: Bytes of the smallest budget that would fit.
        self.smallest_budget = smallest_budget
        #: Bytes of the present one.
        self.budget = budget
        #: Where: "device", "host" or "disk".
        self.tier = tier


class OutOfMemory(Error, MemoryError):
    """A budget has no room for a request."""


class IoError(Error, OSError):
    """A file operation failed."""


class CorruptData(Error, ValueError):
    """A file is damaged, or is of another format."""


class NewerFormat(Error):
    """A file is newer than this version of Spillway."""


class InUse(Error):
    """Another process uses a folder that only one process may use."""
