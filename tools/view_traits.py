"""Write tools/js/shared/traits.d.ts: the synchronised traits of every view class, as TypeScript types.

    python tools/view_traits.py            # writes the file
    python tools/view_traits.py --check    # fails if the file is not what the classes declare now

The views' JavaScript is checked against it, so a trait that is renamed in Python is a type error in ``model.get(...)``.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import traitlets

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "tools" / "js" / "shared" / "traits.d.ts"
FOLDERS = ("dtfm_lab/widgets/views", "dtfm_lab/extensions/*/views")
"""Where views lie; js/build.mjs and js/tsconfig.json have the same two patterns."""

HEAD = """\
// The synchronised traits of every view class. Written by tools/view_traits.py: change the Python class, not this file.

/** The bytes of a trait; `typed` of dom.js makes an array of them. */
export type Binary = DataView;

/** A dictionary. What is in it is said by the docstring of its trait, and by the view that reads it. */
export type Dict = object;
"""

SIMPLE: dict[type[traitlets.TraitType], str] = {  # type: ignore[type-arg]
    traitlets.Bool: "boolean",
    traitlets.Bytes: "Binary",
    traitlets.Dict: "Dict",
    traitlets.Float: "number",
    traitlets.Int: "number",
    traitlets.Unicode: "string",
}


def import_views() -> None:
    """Import every module of every folder of views, so that all view classes are known."""
    for pattern in FOLDERS:
        for folder in sorted(ROOT.glob(pattern)):
            package = ".".join(folder.relative_to(ROOT).parts)
            importlib.import_module(package)
            for module in pkgutil.iter_modules([str(folder)]):
                importlib.import_module(f"{package}.{module.name}")


def view_classes() -> list[type[traitlets.HasTraits]]:
    """Return the classes that have a page of their own, by name."""
    from dtfm_lab.widgets.views.view import View

    def below(cls: type[traitlets.HasTraits]) -> Iterator[type[traitlets.HasTraits]]:
        for child in cls.__subclasses__():
            yield child
            yield from below(child)

    import_views()
    own = {cls for cls in below(View) if "_esm" in vars(cls) and cls.__module__.startswith("dtfm_lab.")}
    return sorted(own, key=lambda cls: cls.__name__)


def type_of(trait: traitlets.TraitType) -> str:  # type: ignore[type-arg]
    """Return the TypeScript type of the values of a trait."""
    if isinstance(trait, traitlets.Enum):
        text = " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in trait.values)
    elif isinstance(trait, traitlets.List):
        inner = type_of(trait._trait) if trait._trait is not None else "unknown"
        text = f"({inner})[]" if " " in inner else f"{inner}[]"
    else:
        text = next((name for kind, name in SIMPLE.items() if isinstance(trait, kind)), "unknown")
    return f"{text} | null" if trait.allow_none and text != "unknown" else text


def traits_of(cls: type[traitlets.HasTraits]) -> dict[str, str]:
    """Return the type of each trait that the page is sent, by name, without those that every widget has."""
    import anywidget

    common = set(anywidget.AnyWidget.class_trait_names())
    synced = cls.class_traits(sync=True)
    return {name: type_of(trait) for name, trait in sorted(synced.items()) if name not in common and name[0] != "_"}


def text() -> str:
    """Return what the file says now."""
    parts = [HEAD]
    for cls in view_classes():
        lines = [f"  {name}: {kind};" for name, kind in traits_of(cls).items()]
        parts.append("\n".join([f"export interface {cls.__name__} {{", *lines, "}", ""]))
    return "\n".join(parts)


def main() -> None:
    if "--check" not in sys.argv:
        PATH.write_text(text(), encoding="utf-8")
    elif PATH.read_text(encoding="utf-8") != text():
        sys.exit(f"{PATH.relative_to(ROOT)} is not what the views declare: run python tools/view_traits.py")


if __name__ == "__main__":
    main()
