"""What can go wrong with the API server, by what to do about it."""

from __future__ import annotations


class ApiError(Exception):
    """The API server answered with an error.

    Attributes:
        status: HTTP status; 0 if there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}" if status else message)
        self.status = status
        self.message = message


class TooManyRequestsError(ApiError):
    """Come back after ``retry_after`` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(429, message)
        self.retry_after = retry_after


class UnreachableError(ApiError):
    """No answer at all."""

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class ConflictError(ApiError):
    """What has the name is not what the request was made for, or not any more: look again."""

    def __init__(self, message: str) -> None:
        super().__init__(409, message)


class MissingError(ApiError):
    """The object is not there, or its namespace is not."""

    def __init__(self, message: str) -> None:
        super().__init__(404, message)


class NamespaceTerminatingError(ApiError):
    """The namespace is being deleted, and everything in it will be gone soon."""

    def __init__(self, message: str) -> None:
        super().__init__(403, message)


class RefusedError(ApiError):
    """The request is wrong or not allowed, and will be until somebody changes something."""
