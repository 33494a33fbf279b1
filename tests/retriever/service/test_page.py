"""The search page in a real browser: Debian's Chromium, driven by Selenium.

apt-get install chromium chromium-driver && pip install selenium
AXE_CORE=axe-core/axe.min.js make soak       # from `npm pack axe-core`, for accessibility
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from retriever import CorpusReader, Document, Index, Mark

pytest.importorskip("fastapi")
pytest.importorskip("selenium", reason="no selenium to drive a browser")
from selenium import webdriver
from selenium.common.exceptions import ElementNotInteractableException as Hidden
from selenium.common.exceptions import StaleElementReferenceException as Stale
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait as Wait

from tests.retriever.documents.file_samples import pdf
from tests.retriever.service.servers import started

pytestmark = pytest.mark.soak
if not (shutil.which("chromium") and shutil.which("chromedriver")):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

TOPICS = ["sailing ships need wind", "steam engines need coal", "wind turns the mill 𝔘 again"]
LONG = "Filler words go on. " * 400 + "The needle is here. " + "Filler words go on. " * 400


def documents():
    for number in range(24):
        text = f"{TOPICS[number % 3]} and number{number}. " + "Filler words go on. " * 90
        yield {
            "id": f"d/{number}",
            "title": f"<b>Title</b> {number}" if number % 2 else None,
            "text": text if number % 4 else TOPICS[number % 3],
            "lang": ["en", "de", "de", "fr"][number % 4] if number % 3 else "en",
            "year": 2000 + number,
            "on": f"20{number // 4:02}-03-{number + 1:02}",
            "link": f"https://example.org/{number}",
            "kind": f"kind {number // 2:02}",
            "by": {"name": f"author {number % 2}"},
        }


@pytest.fixture(scope="module")
def address(tmp_path_factory, minilm):
    folder = tmp_path_factory.mktemp("page")
    with Index.create(folder / "topics", encoder=minilm) as index:
        index.add(documents())
    with Index.create(folder / "pages", encoder=minilm) as index:
        index.add([Document("long", LONG)])
        index.add([Document("bees.pdf", "Bees make nectar.", outline=(Mark(0, "page", "2"),))])
    Index.create(folder / "empty", encoder=minilm).close()
    for name, content in (
        ("report.pdf", pdf(["Contents", "Honey needs bees", "Index"])),
        ("notes.md", b"# Notes\n\nHoney is sweet."),
        ("page.html", b"<p>Honey on the web.</p>"),
    ):
        (folder / "sources").mkdir(exist_ok=True)
        (folder / "sources" / name).write_bytes(content)
    with Index.create(folder / "files", encoder=minilm) as index:
        index.add([{"id": "record", "text": "Honey of a record."}])
        index.add(CorpusReader([folder / "sources"]), remember=True)
    names = ("topics", "pages", "empty", "files")
    with started(*(folder / name for name in names), "--open-files") as (_, port):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module", params=[True, False], ids=["stripped", "whole"])
def proxied(request, tmp_path_factory, minilm):
    """The address of a page below /search/ of a proxy, which takes that off or does not."""
    folder = tmp_path_factory.mktemp("proxied")
    with Index.create(folder / "topics", encoder=minilm) as index:
        index.add(documents())
    # A proxy that takes it off needs no option.
    options = () if request.param else ("--root-path", "/search")
    with started(folder / "topics", *options) as (_, port):

        class Proxy(BaseHTTPRequestHandler):
            def do_GET(self):
                if not self.path.startswith("/search/"):
                    self.send_error(404)
                    return
                length = int(self.headers.get("content-length", 0))
                connection = HTTPConnection("127.0.0.1", port)
                path = self.path.removeprefix("/search") if request.param else self.path
                body = self.rfile.read(length)
                connection.request(self.command, path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name not in ("date", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}/search"
            server.shutdown()


@pytest.fixture(scope="module")
def browser(address):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    page = Page(browser, address)
    page.open("/")
    yield page
    # The policy had nothing to refuse, and no script failed.
    faults = [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]
    assert [one for one in faults if "status of 4" not in one] == []


class Page:
    def __init__(self, browser, address):
        self.browser = browser
        self.address = address

    def open(self, path):
        self.browser.get(self.address + path)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def one(self, selector):
        return Wait(self.browser, 30).until(lambda _: (self.all(selector) or [None])[0])

    def wait(self, condition):
        # What a condition looks at may be replaced meanwhile.
        wait = Wait(self.browser, 30, ignored_exceptions=[Stale, Hidden])
        return wait.until(lambda _: condition())

    def type(self, text):
        self.one("#query").clear()
        self.one("#query").send_keys(text)

    def status(self):
        return self.one("#status").text

    def hits(self):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('[data-hit]')].map((one) => one.dataset.hit)"
        )

    def rows(self, field):
        fields = [one for one in self.all("#facets fieldset") if one.text.startswith(field)]
        return fields[0].find_elements("css selector", ".value") if fields else []

    def value(self, field, value):
        return self.wait(
            lambda: next(one for one in self.rows(field) if one.text.startswith(value))
        ).find_element("tag name", "input")

    def counts(self, field):
        texts = self.wait(lambda: [one.text.split() for one in self.rows(field)])
        return {value: int(count) for value, count in texts}

    def wait_for_results(self, query):
        self.wait(lambda: self.query() == query and self.all("#results[aria-busy=false]"))

    def query(self):
        return self.browser.execute_script("return location.search")


def test_page_searches_while_typing_and_marks_words(page):
    page.type("steam engines")
    page.wait(lambda: "8 of 24 documents contain a word of the query" in page.status())
    assert len(page.hits()) == 10
    assert page.query() == "?q=steam+engines"
    page.wait(lambda: {"steam", "engines"} <= {one.text for one in page.all("mark")})
    # Titles are text, not markup.
    assert any("<b>Title</b>" in one.text for one in page.all("[data-hit]"))
    page.wait_for_results("?q=steam+engines")
    titles = {mark.get_attribute("title") for mark in page.all("mark")}
    assert titles == {"Matches a word of the query"}


def test_scores_are_shown_by_a_switch_that_is_remembered(page):
    page.open("/?q=wind")
    page.wait(lambda: len(page.hits()) == 10)
    assert not any(meter.is_displayed() for meter in page.all(".hit meter"))
    page.one("#scores").click()
    page.browser.refresh()
    page.wait(lambda: sum(meter.is_displayed() for meter in page.all(".hit meter")) == 20)
    assert all(span.get_attribute("title") for span in page.all(".scores > span"))
    page.one("#scores").click()
    page.wait(lambda: not page.one(".hit meter").is_displayed())


def test_hit_with_title_shows_its_path_and_copies_it(page):
    page.open("/?q=number5")
    page.wait(lambda: page.hits()[:1] == ["d/5"])
    assert page.one(".hit .path span").text == "d/5"
    permission = {"permission": {"name": "clipboard-write"}, "setting": "granted"}
    page.browser.execute_cdp_cmd("Browser.setPermission", permission)
    page.one(".hit .path button").click()
    page.wait(lambda: page.one(".hit .path button").text == "Copied")
    # What was copied, as whoever pastes it sees it.
    page.one("#where").send_keys(Keys.CONTROL, "v")
    page.wait(lambda: page.one("#where").get_attribute("value") == "d/5")


def test_search_stands_out_more_than_apply(page):
    color = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
    search, apply, back = (
        page.browser.execute_script(color, selector)
        for selector in (".query button", "#where-form button", "body")
    )
    assert search != apply == back


def test_notice_of_last_search_leaves_while_the_next_one_runs(page):
    page.open("/?q=zebra&mode=bm25")
    page.wait(lambda: page.one("#notice").text)
    # The service answers nothing more, so that the search runs on.
    page.browser.execute_script("window.fetch = () => new Promise(() => {})")
    page.type("wind")
    page.wait(lambda: "Searching" in page.status())
    assert not page.one("#notice").is_displayed()


def test_filters_of_a_phone_are_folded_with_their_number(page):
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open("/?q=wind&where=year+%3E+2001&f=lang%09lang+%3D+%22en%22")
        page.wait(lambda: len(page.hits()) == 10)
        assert page.one("#filters > summary").text == "Filters (2)"
        assert not page.one("#where").is_displayed()
        page.one("#filters > summary").click()
        assert page.one("#where").is_displayed()
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_modes_and_the_weight_rank_again_and_the_back_button_undoes_them(page):
    page.type("wind")
    page.wait(lambda: len(page.hits()) == 10)
    page.one("input[value=bm25]").click()
    page.wait(lambda: "mode=bm25" in page.query() and "16 of 24" in page.status())
    assert not page.one("#weight").is_displayed()
    page.one("input[value=hybrid]").click()
    page.wait_for_results("?q=wind")
    before = page.hits()
    page.one("#alpha").send_keys(Keys.HOME)
    page.wait(lambda: "alpha=0" in page.query() and page.one("#alpha-shown").text == "0.00")
    page.browser.back()
    page.wait(lambda: page.query() == "?q=wind" and page.one("#alpha-shown").text == "0.60")
    page.wait(lambda: page.hits() == before)
    page.browser.back()
    page.wait(lambda: page.one("input[value=bm25]").is_selected())


def test_several_values_of_a_field_are_alternatives_and_all_stay_shown(page):
    page.open("/?q=wind&mode=bm25")
    counts = page.counts("lang")
    assert counts == {"en": 10, "de": 4, "fr": 2}
    page.value("lang", "en").click()
    page.wait(lambda: page.status().startswith("10 of 12 documents that pass the filters"))
    assert [one.text for one in page.all("#chosen li")] == ['lang = "en" ×']
    assert page.counts("lang") == counts
    page.value("lang", "fr").click()
    page.wait(lambda: page.status().startswith("12 of 16 documents"))
    assert page.counts("lang") == counts
    page.value("lang", "fr").click()
    # The fields of objects have facets, too.
    page.wait(lambda: any(one.text.startswith("author 1") for one in page.all(".value")))
    page.wait(lambda: page.status().startswith("10 of 12 documents"))
    page.one("#chosen button").click()
    page.wait(lambda: not page.all("#chosen li"))
    page.one("#where").send_keys("lang = 'de' and lang =")
    page.one("#where-form button").click()
    # Where it stands in what was typed; nobody typed a parenthesis.
    says = (
        "filter, character 23: expected a value (a string in quotes, a number, true, false or null)"
    )
    page.wait(lambda: says in page.one("#notice").text)
    page.one("#where").clear()
    page.one("#where").send_keys("lang = 'de' or")
    page.one("#where-form button").click()
    page.wait(lambda: "character 15: expected a field name" in page.one("#notice").text)


def test_documents_are_browsed_without_a_query(page):
    page.wait(lambda: page.status().startswith("24 documents"))
    assert page.hits() == sorted(f"d/{number}" for number in range(24))[:10]
    assert page.browser.title == "topics – Search"
    page.value("lang", "fr").click()
    page.wait(lambda: page.hits() == ["d/11", "d/19", "d/23", "d/7"])
    page.one("[data-hit]").click()
    page.wait(lambda: page.all(".opened .passage.found"))
    page.one("#chosen button").click()
    page.wait(lambda: page.status().startswith("24 documents"))
    page.open("/?where=lang+%3D+1")
    page.wait(lambda: "No document passes the filters" in page.one("#notice").text)


def test_numbers_and_dates_are_chosen_as_ranges(page):
    # A date has bars; numbers are parted into a few buckets.
    page.wait(lambda: len(page.all(".bars")) == 1)
    buckets = [
        *("under 2005", "5", "2005 to 2009", "5", "2010 to 2014", "5"),
        *("2015 to 2019", "5", "2020 and more", "4"),
    ]

    def year_rows():
        return [text for row in page.rows("year") for text in row.text.split("\n")]

    page.wait(lambda: year_rows() == buckets)
    page.value("year", "2010 to 2014").click()
    page.wait(lambda: page.status().startswith("5 documents that pass"))
    page.value("year", "2020 and more").click()
    page.wait(lambda: page.status().startswith("9 documents that pass"))
    filters = [chip.text for chip in page.all("#chosen li")]
    assert filters == ["year >= 2010 and year < 2015 ×", "year >= 2020 ×"]
    # The counts of a field do not depend on its own filters.
    page.wait(lambda: year_rows() == buckets)
    page.open("/")
    years = page.one("[data-value='from year']")
    assert years.get_attribute("placeholder") == "2000"
    years.send_keys("2004", Keys.TAB)
    page.wait(lambda: page.status().startswith("20 documents that pass"))
    page.one("[data-value='to year']").send_keys("2005", Keys.ENTER)
    page.wait(lambda: page.hits() == ["d/4", "d/5"])
    assert [one.text for one in page.all("#chosen li")] == ["year >= 2004 and year <= 2005 ×"]
    page.one("#chosen button").click()
    page.wait(lambda: page.status().startswith("24 documents"))
    page.one("[data-value='from on']").send_keys("2005", Keys.TAB)
    page.wait(lambda: page.status().startswith("4 documents that pass"))
    page.browser.back()
    page.wait(lambda: page.status().startswith("24 documents"))


def test_newest_months_are_chosen_and_hits_show_their_day(page):
    page.open("/")
    page.wait(lambda: page.rows("on"))
    months = [row.text.split("\n")[0] for row in page.rows("on")]
    assert months == [f"20{year:02}-03" for year in range(5, -1, -1)]
    page.value("on", "2005-03").click()
    page.wait(lambda: page.status().startswith("4 documents"))
    page.open("/?index=files&q=honey")
    # The record has no file, and no date.
    page.wait(lambda: len(page.all("#hits .where")) == len(page.hits()) - 1 > 0)
    assert all(re.match(r"\d{4}-\d\d-\d\d", place.text) for place in page.all("#hits .where"))


def test_recency_and_order_by_date_are_part_of_the_address(page):
    page.open("/?index=files&q=honey")
    page.wait(lambda: len(page.hits()) == 4)
    page.one("#recency option[value='30']").click()
    page.wait(lambda: "recency=30" in page.query())
    page.one("#sort option[value='date']").click()
    page.wait_for_results(page.query())
    assert "sort=date" in page.query()
    page.wait(lambda: page.hits()[-1] == "record")
    page.browser.back()
    page.wait(lambda: page.one("#sort").get_attribute("value") == "score")
    page.open("/?index=files&q=honey&recency=90")
    page.wait(lambda: page.one("#recency").get_attribute("value") == "90")


def test_more_values_open_and_are_searched(page):
    page.wait(lambda: len(page.rows("kind")) == 8)
    page.one("[data-value='more kind']").click()
    page.wait(lambda: len(page.rows("kind")) == 12)
    page.one("[data-value='more kind']").click()
    page.wait(lambda: len(page.rows("kind")) == 8)


def test_back_steps_through_every_query(page):
    for text in ("wind", "coal"):
        page.type(text)
        page.wait(lambda text=text: page.query() == f"?q={text}" and text in page.browser.title)
        time.sleep(1.6)
    page.browser.back()
    page.wait(lambda: page.query() == "?q=wind")


def test_a_hit_opens_with_its_neighbors_and_finds_others_like_it(page):
    page.open("/?q=number5")
    page.wait_for_results("?q=number5")
    page.wait(lambda: page.hits()[:1] == ["d/5"])
    page.wait(lambda: page.one("[data-hit]").send_keys(Keys.ENTER) or True)
    page.wait(lambda: page.all(".opened .passage.found"))
    page.wait(lambda: "passage 1 of" in page.one(".opened").text)
    assert "open=d%2F5" in page.query()
    # The passage is there once, and links can be followed.
    assert not page.one(".hit.open .excerpt").is_displayed()
    assert page.one(".opened td a").get_attribute("href") == "https://example.org/5"
    page.one(".opened .buttons button").click()
    page.wait(lambda: "like=d%2F5" in page.query() and page.hits() and "d/5" not in page.hits())
    page.browser.back()
    page.wait(lambda: page.all(".opened") and page.hits()[0] == "d/5")
    page.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.wait(lambda: not page.all(".opened"))


@pytest.mark.parametrize("width", [360, 1280])
def test_an_opened_hit_is_in_sight_and_its_neighbors_are_folded(page, width):
    size = {"width": width, "height": 600, "deviceScaleFactor": 1, "mobile": width < 500}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    place = (
        "const place = document.querySelector('.opened mark').getBoundingClientRect();"
        "return [place.top >= 0, place.bottom <= innerHeight]"
    )
    try:
        for opened in ("", "&open=long"):
            page.open(f"/?q=needle&index=pages{opened}")
            page.wait(lambda: page.hits()[:1] == ["long"])
            if not opened:
                page.one("[data-hit]").click()
            page.wait(lambda: re.search(r"passage \d+ of", page.one(".opened").text))
            assert page.browser.execute_script(place) == [True, True]
            assert [near.get_attribute("open") for near in page.all(".near")] == [None, None]
        page.one(".near summary").click()
        assert page.one(".near .passage").text.startswith("Filler words")
        buttons = page.all(".opened .buttons button")
        buttons[1].click()
        page.wait(lambda: all(near.get_attribute("open") for near in page.all(".near")))
        assert page.browser.execute_script(place) == [True, True]
        texts = [one.get_property("textContent") for one in page.all(".opened .passage")]
        assert "".join(texts) == LONG
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_hit_of_a_pdf_says_its_page(page):
    page.open("/?q=nectar&mode=bm25&index=pages")
    page.wait(lambda: page.hits() == ["bees.pdf"])
    assert page.one(".hit .where").text == "page 2"


@pytest.mark.parametrize(
    ("id_", "label", "end"),
    [
        ("report.pdf", "Open file", "#page=2"),
        ("notes.md", "Open file", "index=files"),
        ("page.html", "Download file", "index=files"),
    ],
)
def test_a_hit_opens_its_file(page, id_, label, end):
    page.open(f"/?q=honey&index=files&open={id_}")
    link = page.one(".opened a.button")
    assert link.text == label
    assert link.get_attribute("href").endswith(end)
    if label == "Download file":
        return
    before = page.browser.current_window_handle
    link.click()
    page.wait(lambda: len(page.browser.window_handles) == 2)
    page.browser.switch_to.window(page.browser.window_handles[-1])
    try:
        if id_ == "notes.md":
            page.wait(lambda: "Honey is sweet." in page.one("body").text)
        else:
            # The policy lets the browser's own viewer run, and nothing of the file.
            viewer = "chrome-extension://mhjfbmdgcfjbbpaeojofohoefgiehjai/"
            targets = page.browser.execute_cdp_cmd
            page.wait(lambda: viewer in str(targets("Target.getTargets", {})))
    finally:
        page.browser.close()
        page.browser.switch_to.window(before)


def test_a_hit_without_a_file_offers_none(page):
    page.open("/?q=record&index=files&open=record")
    page.wait(lambda: "the whole document" in page.one(".opened").text)
    assert page.all(".opened a.button") == []


def test_the_page_works_below_a_path_of_a_proxy(browser, proxied):
    page = Page(browser, proxied)
    page.open("/?mode=bm25")
    page.wait(lambda: page.status().startswith("24 documents"))
    page.type("steam")
    page.wait(lambda: "8 of 24 documents contain a word" in page.status())
    page.one("[data-hit]").click()
    page.wait(lambda: "passage" in page.one(".opened").text or page.all(".near"))
    assert browser.current_url.startswith(f"{proxied}/?q=steam")
    page.one("footer a").click()
    page.wait(lambda: "/search" in browser.page_source and '"openapi"' in browser.page_source)
    assert browser.current_url == f"{proxied}/openapi.json"
    browser.get_log("browser")


def test_page_is_usable_by_keyboard(page):
    page.open("/?q=wind")
    page.wait(lambda: len(page.hits()) == 10)
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN):
        page.browser.switch_to.active_element.send_keys(key)
    active = page.browser.switch_to.active_element
    assert active.get_attribute("data-hit") == page.hits()[1]
    active.send_keys("/")
    assert page.browser.switch_to.active_element.get_attribute("id") == "query"


def test_an_empty_index_and_no_hits_say_what_to_do(page):
    page.open("/?index=empty")
    page.wait(lambda: "retriever index" in page.one("#notice").text)
    page.open("/?q=zebra&mode=bm25")
    page.wait(lambda: "No document has a word" in page.one("#notice").text)
    page.one("#notice button").click()
    page.wait(lambda: len(page.hits()) == 10)
    page.open("/?q=wind&index=other")
    page.wait(lambda: "There is no index other" in page.one("#notice").text)


def test_what_a_query_leaves_out_is_said_and_a_button_searches_for_it_as_it_is(page):
    for query, notice in (
        ("wind -mill", "Documents with “mill” are left out."),
        ('"coal wind"', 'No document has "coal wind" as written'),
    ):
        page.open(f"/?q={quote(query)}&mode=bm25")
        page.wait(lambda notice=notice: notice in page.one("#notice").text)
        assert not any("mill" in hit.text for hit in page.all("#hits li"))
        page.one("#notice button").click()
        page.wait(lambda: len(page.hits()) == 10 and not page.one("#notice").is_displayed())
        assert "raw=1" in page.browser.current_url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize(
    "path",
    [
        "/?q=wind&open=d/0",
        "/?f=lang%09lang+%3D+%22en%22&open=d/0",
        "/?q=zebra&mode=bm25&f=lang%09lang+%3D+%22en%22",
    ],
)
def test_pages_fit_and_axe_finds_no_violation(page, path, width, scheme):
    axe = os.environ.get("AXE_CORE")
    if not axe:
        pytest.skip("AXE_CORE is not set: no axe-core to run")
    emulate = page.browser.execute_cdp_cmd
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    emulate("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    emulate("Emulation.setDeviceMetricsOverride", size)
    try:
        page.open(path)
        page.wait(lambda: page.all(".opened") or page.one("#notice").text)
        page.browser.execute_script(Path(axe).read_text())
        found = page.browser.execute_async_script("axe.run().then(arguments[0])")
        wide = page.browser.execute_script("return document.documentElement.scrollWidth")
    finally:
        emulate("Emulation.clearDeviceMetricsOverride", {})
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert wide <= width
