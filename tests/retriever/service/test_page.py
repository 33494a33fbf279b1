"""The search page in a real browser: Debian's Chromium, driven by Selenium.

apt-get install chromium chromium-driver && pip install selenium
AXE_CORE=axe-core/axe.min.js make soak       # from `npm pack axe-core`, for accessibility
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from retriever import Document, Index, Mark

pytest.importorskip("fastapi")
pytest.importorskip("selenium", reason="no selenium to drive a browser")
from selenium import webdriver
from selenium.common.exceptions import ElementNotInteractableException as Hidden
from selenium.common.exceptions import StaleElementReferenceException as Stale
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait as Wait

from tests.retriever.service.servers import started

pytestmark = pytest.mark.soak
if not (shutil.which("chromium") and shutil.which("chromedriver")):
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

TOPICS = ["sailing ships need wind", "steam engines need coal", "wind turns the mill 𝔘 again"]


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
        index.add([Document("bees.pdf", "Bees make nectar.", outline=(Mark(0, "page", "2"),))])
    Index.create(folder / "empty", encoder=minilm).close()
    with started(folder / "topics", folder / "pages", folder / "empty") as (_, port):
        yield f"http://127.0.0.1:{port}"


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

    def settled(self, query):
        self.wait(lambda: self.query() == query and self.all("#results[aria-busy=false]"))

    def query(self):
        return self.browser.execute_script("return location.search")


def test_hits_come_as_one_types_and_their_words_are_marked(page):
    page.type("steam engines")
    page.wait(lambda: "8 of 24 documents contain a word of the query" in page.status())
    assert len(page.hits()) == 10
    assert page.query() == "?q=steam+engines"
    page.wait(lambda: {"steam", "engines"} <= {one.text for one in page.all("mark")})
    # Titles are text, not markup.
    assert any("<b>Title</b>" in one.text for one in page.all("[data-hit]"))
    assert len(page.all(".hit meter")) == 20


def test_modes_and_the_weight_rank_again_and_the_back_button_undoes_them(page):
    page.type("wind")
    page.wait(lambda: len(page.hits()) == 10)
    page.one("input[value=bm25]").click()
    page.wait(lambda: "mode=bm25" in page.query() and "16 of 24" in page.status())
    assert not page.one("#weight").is_displayed()
    page.one("input[value=hybrid]").click()
    page.settled("?q=wind")
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
    page.wait(lambda: len(page.all(".bars")) == 2)
    years = page.one("[data-value='from year']")
    assert years.get_attribute("placeholder") == "2000"
    years.send_keys("2004", Keys.TAB)
    page.wait(lambda: page.status().startswith("20 documents that pass"))
    page.one("[data-value='to year']").send_keys("2005", Keys.ENTER)
    page.wait(lambda: page.hits() == ["d/4", "d/5"])
    assert [one.text for one in page.all("#chosen li")] == ["year >= 2004 and year <= 2005 ×"]
    # The bars are those of all documents.
    assert len(page.all(".bars:first-of-type")) == 2
    page.one("#chosen button").click()
    page.wait(lambda: page.status().startswith("24 documents"))
    page.one("[data-value='from on']").send_keys("2005", Keys.TAB)
    page.wait(lambda: page.status().startswith("4 documents that pass"))
    page.browser.back()
    page.wait(lambda: page.status().startswith("24 documents"))


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
    page.settled("?q=number5")
    page.wait(lambda: page.hits()[:1] == ["d/5"])
    page.wait(lambda: page.one("[data-hit]").send_keys(Keys.ENTER) or True)
    page.wait(lambda: page.all(".opened .passage.found"))
    assert "passage 1 of" in page.one(".opened").text
    assert len(page.all(".opened .passage")) == 2
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


def test_a_hit_of_a_pdf_says_its_page(page):
    page.open("/?q=nectar&mode=bm25&index=pages")
    page.wait(lambda: page.hits() == ["bees.pdf"])
    assert page.one(".hit .where").text == "page 2"


def test_the_keyboard_is_enough(page):
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
