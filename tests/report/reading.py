"""Pages as a reader finds them."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br"}


class Reading(HTMLParser):
    """text; tags in order; headings as (level, text); rows: those of all tables, as lists of cell
    texts; links, ids; data: of pictures. Fails on tags that are not closed in order."""

    def __init__(self, page: str):
        super().__init__()
        self.text, self.tags, self.headings, self.rows = "", [], [], []
        self.links, self.ids, self.sources, self.open = [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if "href" in values else []
        self.sources += [values["src"]] if "src" in values else []
        assert not any(name.startswith("on") for name in values), values
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append([int(tag[1]), ""])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("style", "title"):
            return
        self.text += data
        if any(tag in self.open for tag in ("h1", "h2", "h3", "h4")):
            self.headings[-1][1] += data
        if any(tag in self.open for tag in ("td", "th")):
            self.rows[-1][-1] += data

    def row(self, name: str) -> list[str]:
        """The cells after `name`, of the last row that begins with it."""
        return [row for row in self.rows if row[0] == name][-1][1:]
