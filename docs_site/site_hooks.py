"""What the site needs beyond MkDocs: navigation from docs/index.md, files of the repository that pages link to, and pages without
inline scripts, which the node's content security policy forbids."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
PAGES_OUTSIDE: Final = ("CONTRIBUTING.md", "CHANGELOG.md")
ICON: Final = "console/public/icon.svg"
# Source maps, and stemmers of languages that the pages are not in.
LEFT_OUT: Final = ("assets/javascripts/lunr", "sitemap.xml", "sitemap.xml.gz", "404.html")

_SECTION: Final = re.compile(r"^## (.+)$")
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_SCRIPT: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def on_config(config: Any) -> Any:
    """Take the navigation from the index, which a test holds to leading to every page."""
    sections: dict[str, list[dict[str, str]]] = {}
    listed: set[str] = set()
    current = ""
    for line in (DOCS / "index.md").read_text(encoding="utf-8").splitlines():
        if heading := _SECTION.match(line):
            current = heading[1]
        for title, target, _ in _LINK.findall(line):
            page = target.removeprefix("../")
            if page.endswith(".md") and page not in listed:
                listed.add(page)
                sections.setdefault(current, []).append({_title(title): page})
    config.nav = [{"Documentation": "index.md"}, *({name: pages} for name, pages in sections.items())]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add pages and files that are outside of docs."""
    for name in (*PAGES_OUTSIDE, *_linked_files()):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, "images/icon.svg", abs_src_path=str(ROOT / ICON)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to files of the repository lead to their copies. A folder has no page; its name stays."""
    folder = (DOCS / page.file.src_uri).parent if page.file.src_uri not in PAGES_OUTSIDE else ROOT

    def replaced(link: re.Match[str]) -> str:
        title, target, anchor = link[1], link[2], link[3] or ""
        inside = _inside(folder, target)
        if inside is None:
            return link[0]
        if (ROOT / inside).is_dir():
            return title
        own_depth = page.file.src_uri.count("/")
        relative = inside.removeprefix("docs/")
        return f"[{title}]({'../' * own_depth}{relative}{anchor})"

    return _LINK.sub(replaced, markdown)


def on_post_page(output: str, config: Any, page: Any) -> str:
    """Move inline scripts into files."""
    up = "../" * page.file.url.count("/")

    def moved(script: re.Match[str]) -> str:
        name = f"assets/inline-{hashlib.sha256(script[1].encode()).hexdigest()[:12]}.js"
        path = Path(config.site_dir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script[1], encoding="utf-8")
        return f'<script src="{up}{name}"></script>'

    return _SCRIPT.sub(moved, output)


def on_post_build(config: Any) -> None:
    """Leave out what no page uses."""
    import shutil

    site = Path(config.site_dir)
    for name in LEFT_OUT:
        path = site / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in site.rglob("*.map"):
        path.unlink()


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]


def _linked_files() -> list[str]:
    """Files of the repository that pages link to."""
    linked: set[str] = set()
    for page in [*DOCS.rglob("*.md"), *(ROOT / name for name in PAGES_OUTSIDE)]:
        for _, target, _ in _LINK.findall(page.read_text(encoding="utf-8")):
            inside = _inside(page.parent, target)
            if inside is not None and not inside.startswith("docs/") and (ROOT / inside).is_file():
                linked.add(inside)
    return sorted(linked - set(PAGES_OUTSIDE))


def _inside(folder: Path, target: str) -> str | None:
    """The path within the repository of what a link leads to, if that is outside of docs or said from outside; None otherwise."""
    if "://" in target or target.startswith("mailto:"):
        return None
    path = (folder / target).resolve()
    is_ordinary = folder.is_relative_to(DOCS) and path.is_relative_to(DOCS)
    if is_ordinary or not path.is_relative_to(ROOT) or not path.exists():
        return None
    return path.relative_to(ROOT).as_posix()
