"""Templates and expressions of studies' files, filled with the fields of a page."""

from collections.abc import Mapping

import jinja2

from testbed.basics.errors import InputError

_ENVIRONMENT = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)

_OF_VALUES = (TypeError, ValueError, ArithmeticError, InputError)
"""What goes wrong with an expression's values."""


def filled(source: str, names: Mapping[str, object], place: str) -> str:
    """A template, filled.

    Args:
        place: where it stands, for errors.

    Raises:
        InputError: it is wrong, or names something that there isn't.
    """
    try:
        return _ENVIRONMENT.from_string(source).render(names)
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"{place}, line {error.lineno}: {error.message}") from error
    except (jinja2.UndefinedError, *_OF_VALUES) as error:
        raise InputError(f"{place}: {error}") from error


def value_of(expression: str, names: Mapping[str, object], place: str) -> object:
    """The value of an expression such as `published.figure_6.most`.

    Raises:
        InputError: it is wrong, or names something that there isn't.
    """
    try:
        made: object = _ENVIRONMENT.compile_expression(expression, undefined_to_none=False)(names)
        if isinstance(made, jinja2.Undefined):
            str(made)  # raises the error that says what is missing
    except jinja2.TemplateError as error:
        raise InputError(f"{place}: {expression}: {error.message}") from error
    except _OF_VALUES as error:
        raise InputError(f"{place}: {expression}: {error}") from error
    return made
