"""A field of a frozen dataclass whose value may be computed when it is first read.

``field: tuple = deferrable(())`` is declared as any field with a default, and the class says in ``__getstate__`` that
what is pickled or copied holds values only. Whoever makes an instance passes a value, or ``deferred`` of a function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


def deferred(compute: Callable[[], T]) -> T:
    """In place of a value, what computes it when the field is first read."""
    return cast(T, _Deferred(compute))


def deferrable(default: T) -> T:
    """In a class, the default of a field that takes ``deferred`` values."""
    return cast(T, _Field(default))


@dataclass(frozen=True)
class _Deferred(Generic[T]):
    compute: Callable[[], T]


class _Field(Generic[T]):
    """A descriptor; dataclasses take what it gives for the class itself as the default."""

    def __init__(self, default: T) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self._default
        value: T | _Deferred[T] = instance.__dict__[self._name]
        if isinstance(value, _Deferred):
            value = instance.__dict__[self._name] = value.compute()
        return cast(T, value)

    def __set__(self, instance: Any, value: T) -> None:
        instance.__dict__[self._name] = value
