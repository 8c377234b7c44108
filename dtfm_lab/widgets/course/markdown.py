"""The little of Markdown that tasks and hints are written in, as HTML."""

import re
from html import escape

LINKS = ("https://", "http://")


def to_html(text: str) -> str:
    """Paragraphs, lists, code blocks, ``code``, **bold**, *emphasis* and links; everything else as it stands."""
    blocks = []
    for number, part in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
        if number % 2:
            blocks.append(f"<pre><code>{escape(part.strip(chr(10)))}</code></pre>")
        else:
            blocks += [_block(block) for block in re.split(r"\n\s*\n", part) if block.strip()]
    return "".join(blocks)


def _block(block: str) -> str:
    lines = block.strip().splitlines()
    for mark, tag in ((r"[-*] ", "ul"), (r"\d+\. ", "ol")):
        if re.match(mark, lines[0]):
            items = re.split(rf"^\s*{mark}", "\n".join(lines), flags=re.MULTILINE)[1:]
            return f"<{tag}>{''.join(f'<li>{inline(item)}</li>' for item in items)}</{tag}>"
    return f"<p>{inline(' '.join(line.strip() for line in lines))}</p>"


def inline(text: str) -> str:
    """One line: what is between backticks is left as it is."""
    parts = re.split(r"(`+)(.+?)\1", text)
    html = ""
    for number in range(0, len(parts), 3):
        html += _words(escape(parts[number]))
        if number + 2 < len(parts):
            html += f"<code>{escape(parts[number + 2].strip())}</code>"
    return html


def _words(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    text = re.sub(r"(?<!\w)\*([^*\s][^*]*?)\*(?!\w)", r"<i>\1</i>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", _link, text)


def _link(found: re.Match[str]) -> str:
    """A link to another site opens beside the lab; of one to a file, whose place is not known here, the words stay."""
    words, target = found.groups()
    return (
        f'<a href="{target}" target="_blank" rel="noopener noreferrer">{words}</a>'
        if target.startswith(LINKS)
        else words
    )
