"""The templates of generated files; the only module that imports jinja2."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import jinja2


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of ``emit/templates``, whose tags leave no lines behind."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("emit", "templates"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=name != "openmp.c.j2",
        lstrip_blocks=name != "openmp.c.j2",
        autoescape=False,
    )
    environment.filters["c_string"] = _c_string
    return environment.get_template(name)


def page(package: str, name: str, filters: Mapping[str, Callable[..., str]]) -> jinja2.Template:
    """A template of HTML in the folder ``templates`` of a package; all values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)


def _c_string(row: str) -> str:
    """A line of text as a C literal that ends in a line break."""
    return '"' + row.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'
