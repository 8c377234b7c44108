"""The subset of Markdown in which tasks and hints are written, as HTML."""

import re
from html import escape

from dtfm_lab.widgets import markup


def markdown(text: str) -> str:
    """Return a task or hint as HTML.

    The supported Markdown is paragraphs, lists, code blocks, ``code``, **bold**, *emphasis* and web links. A link to a
    file becomes plain text. Anything else is shown as written.
    """
    blocks = []
    # Parts with an odd number are between two lines of backticks.
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
            return f"<{tag}>{''.join(f'<li>{inline_markdown(item)}</li>' for item in items)}</{tag}>"
    return f"<p>{inline_markdown(' '.join(line.strip() for line in lines))}</p>"


def inline_markdown(text: str) -> str:
    """Return one line of Markdown as HTML. Text between backticks is not interpreted."""
    # The pattern has two groups, so every third part is outside of backticks.
    parts = re.split(r"(`+)(.+?)\1", text)
    html = ""
    for number in range(0, len(parts), 3):
        html += _emphasised(escape(parts[number]))
        if number + 2 < len(parts):
            html += f"<code>{escape(parts[number + 2].strip())}</code>"
    return html


def _emphasised(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)
    # Not next to letters or digits, so that 2*3*4 stays as it is.
    text = re.sub(r"(?<!\w)\*([^*\s][^*]*?)\*(?!\w)", r"<i>\1</i>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", _link, text)


def _link(found: re.Match[str]) -> str:
    """Return a link that opens in a new tab. For a link to a file, return only its text, because the file's path is not
    known here."""
    words, target = found.groups()
    link = f'<a href="{target}" target="_blank" rel="noopener noreferrer">{words}</a>'
    return link if target.startswith(markup.LINKS) else str(words)
