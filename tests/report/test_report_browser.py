"""Pages in a browser: nothing is run, nothing is fetched, nothing sticks out, on a phone or not."""

import html
import json
import re
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import report_examples as examples
from PIL import Image
from test_statement_page import IMAGES, STAMPS, TABLE

from dpgen_jax.evaluation import report as report_page
from dpgen_jax.evaluation.report import page
from dpgen_jax.release import documents

pytestmark = pytest.mark.slow

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which(
    "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--enable-logging=stderr",
         "--virtual-time-budget=20000")
WIDTHS = (390, 1280)
PHONE, SCREEN = WIDTHS
# Without a scroll bar of its own, which some browsers draw and which would count as ink.
FRAME = """<!doctype html><title>frame</title><body style="margin:0;overflow:hidden">
<iframe src="%s.html" style="width:%dpx;height:900px;border:0"></iframe>"""
# Loads each page in frames of the given widths, and writes what it finds there as its own text.
PROBE = """<!doctype html><title>probe</title><body><script>
const found = {}, jobs = %s;
const look = (frame) => {
  const page = frame.contentDocument, root = page.documentElement;
  return {
    sticks_out: root.scrollWidth - root.clientWidth, height: root.scrollHeight,
    scripts: page.scripts.length, hacked: frame.contentWindow.hacked === true,
    broken: [...page.images].filter(i => !i.complete || !i.naturalWidth).length,
    images: page.images.length,
    no_text: [...page.images].filter(i => !i.alt).length,
    fetched: frame.contentWindow.performance.getEntriesByType("resource").map(r => r.name)
      .filter(name => !name.startsWith("data:")),
  };
};
Promise.all(jobs.map(([name, width]) => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:600px;border:0`;
  frame.onload = () => { found[`${name} ${width}`] = look(frame); done(); };
  frame.src = name;
  document.body.append(frame);
}))).then(() => { document.body.textContent = JSON.stringify(found); });
</script>"""
# As hostile as a page could get if its text were not escaped, with the same policy.
CONTROL = """<!doctype html><html><head><meta http-equiv="Content-Security-Policy"
content="default-src 'none'; img-src data:; style-src 'unsafe-inline'"></head><body>
<script>window.hacked = true</script><img src="leak.png"><div style="width:3000px">wide</div>"""


def pages():
    seeded, images = examples.seeded_report(), examples.image_report()
    rows = examples.table_report(14, hostile=True).samples
    pixels = images.samples[0]
    synthetic = {name: page(examples.ALL[name]()) for name in ("images", "bare", "published")}
    synthetic["hostile"] = page(examples.table_report(14, hostile=True))
    synthetic["compare"] = report_page.compare([
        report_page.Entry(examples.HOSTILE, r.found, r.privacy) for r in (images, seeded)])
    synthetic["neighbours"] = report_page.private_page(
        "x", pixels[:9], pixels[9:18], np.arange(9.0), {}
    )
    for name, (stamp, spec) in {"statement": ("valid", IMAGES), "odd": ("not covered", TABLE),
                                "seeded": ("seeded", TABLE)}.items():
        synthetic[name] = documents.files(STAMPS[stamp], spec, documents.of_release(
            spec, False))["statement.html"].decode()
    synthetic["rows"] = report_page.private_page("x", rows[1][:9], rows[1][9:18], np.arange(9.0),
                                                 {},
                                                 rows[0])
    return synthetic | {"control": CONTROL}


def browse(url, profile, *flags):
    """Opens a page in a headless browser, which reaches no other machine."""
    return subprocess.run([BROWSER, *FLAGS, *flags, f"--user-data-dir={profile}", url],
                          capture_output=True, text=True, timeout=1800, check=False)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(the folder of all pages, their address, what was asked of the server)."""
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    folder, requests = tmp_path_factory.mktemp("pages"), []
    synthetic = pages()
    for name, text in synthetic.items():
        (folder / name).with_suffix(".html").write_text(text, encoding="utf-8")
    (folder / "probe.html").write_text(PROBE % json.dumps(
        [(f"{name}.html", width) for name in synthetic for width in WIDTHS]))

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            requests.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


@pytest.fixture(scope="module")
def seen(served, tmp_path_factory):
    """(what the probe found, what the browser said, what was asked of the server)."""
    _, address, requests = served
    done = browse(f"{address}/probe.html", tmp_path_factory.mktemp("browser"),
                  "--window-size=1400,900", "--dump-dom")
    body = re.search(r"<body>(\{.*\})\s*</body>", done.stdout, re.DOTALL)
    assert body, f"the probe did not finish: {done.stdout[:300]} {done.stderr[-2000:]}"
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(body[1])), console, [*requests]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["images", "statement", "odd"])
def test_a_screenshot_shows_a_page_of_the_whole_width(served, tmp_path, name, width):
    """Neither blank nor cut: there is ink in the left and in the right half, and none beside."""
    folder, address, _ = served
    (folder / "frame.html").write_text(FRAME % (name, width))
    picture = tmp_path / f"{name}-{width}.png"
    browse(f"{address}/frame.html", tmp_path / "browser", "--window-size=1400,900",
           f"--screenshot={picture}")
    gray = np.asarray(Image.open(picture).convert("L"), float)
    ink = np.abs(gray - gray[-5:, -5:].mean()) > 40
    assert ink[:, :width // 2].mean() > 0.005 and ink[:, width // 2:width].mean() > 0.002
    assert not ink[:, width + 20:].any()


def of(seen, *widths):
    return {key: result for key, result in seen[0].items()
            if not key.startswith("control") and int(key.split()[1]) in widths}


def test_the_checks_would_see_a_bad_page(seen):
    result, console, requests = seen
    control = result[f"control.html {PHONE}"]
    assert control["sticks_out"] > 0 and control["scripts"] == control["broken"] == 1
    assert not control["hacked"], "the page's own policy must refuse scripts"
    assert not any("leak" in path for path in requests), "and images from elsewhere"
    assert any("control.html" in line for line in console)


def test_nothing_is_run_and_the_console_is_silent(seen):
    result, console, _ = seen
    assert not [line for line in console if "control.html" not in line]
    assert all(page["scripts"] == 0 and not page["hacked"] for page in of(seen, *WIDTHS).values())


def test_nothing_is_fetched(seen):
    _, _, requests = seen
    assert all(page["fetched"] == [] for page in of(seen, *WIDTHS).values())
    assert {path for path in requests if not path.endswith(".html")} <= {"/favicon.ico"}


def test_all_pictures_show_and_have_a_text(seen):
    for page_ in of(seen, *WIDTHS).values():
        assert page_["broken"] == page_["no_text"] == 0
    assert of(seen, SCREEN)["images.html 1280"]["images"] == 5


def test_no_page_scrolls_sideways(seen):
    assert {key: page["sticks_out"] for key, page in of(seen, *WIDTHS).items()
            if page["sticks_out"] > 0} == {}
