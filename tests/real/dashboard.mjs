// Looks at the dashboard in Chromium: dashboard.mjs URL FOLDER empty|filled|queries|controls|again. Prints PASS or FAIL lines.
import { createRequire } from "node:module";

const puppeteer = createRequire(`${process.env.NODE_PATH}/x.js`)("puppeteer-core");
const [url, folder, stage] = process.argv.slice(2);
const browser = await puppeteer.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
const verdict = (name, holds, found) => console.log(`${holds ? "PASS" : "FAIL"} ${name}${holds ? "" : ` (${JSON.stringify(found)})`}`);
const views = [
  { name: "desktop-light", width: 1280, height: 900, scheme: "light" },
  { name: "desktop-dark", width: 1280, height: 900, scheme: "dark" },
  { name: "wide-light", width: 1600, height: 1000, scheme: "light" },
  { name: "phone-light", width: 390, height: 844, scheme: "light" },
  { name: "phone-dark", width: 390, height: 844, scheme: "dark" },
];

async function open({ width, height, scheme }) {
  const page = await browser.newPage();
  page.complaints = [];
  page.asked = [];
  page.on("console", (message) => { if (message.type() === "error") page.complaints.push(message.text()); });
  page.on("pageerror", (error) => page.complaints.push(error.message));
  page.on("request", (request) => page.asked.push(request.url()));
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(url, { waitUntil: "load" });
  await page.waitForFunction(() => document.getElementById("rate").textContent !== "–");
  await page.waitForFunction(() => document.getElementById("queries").childElementCount > 0);
  return page;
}
const text = (page, selector) => page.$eval(selector, (element) => element.innerText);
const said = (page, words, place = "done") => page.waitForFunction((words, place) => document.getElementById(place).textContent.includes(words), { timeout: 10000 }, words, place).then(() => true, () => false);

const looks = {
  async empty() {
    const page = await open(views[0]);
    verdict("empty: it says what to do", /curl .*http/.test(await text(page, "#empty")), await text(page, "body"));
    await page.screenshot({ path: `${folder}/empty.png`, fullPage: true });
  },
  async filled() {
    for (const view of views) {
      const page = await open(view);
      const [ratio, saved, state] = [await text(page, "#ratio-today"), await text(page, "#saved-today"), await text(page, "#state")];
      verdict(`${view.name}: most was served from the cache`, Number.parseInt(ratio) > 50, ratio);
      verdict(`${view.name}: bytes saved have a unit`, /\d ?MB/.test(saved), saved);
      verdict(`${view.name}: it works`, state === "working", state);
      const rows = await page.$$eval("#sites tbody tr, #objects tbody tr, #why .line, #times .line, #disks .disk, #memory li", (rows) => rows.length);
      verdict(`${view.name}: sites, objects, reasons, times, disks and memory are listed`, rows > 20, rows);
      const savings = await page.$eval("#savings svg", (svg) => svg.getAttribute("aria-label"));
      verdict(`${view.name}: savings are shown by day`, /^bytes saved by day: .*\d ?MB/.test(savings), savings);
      const failing = await page.$$eval("#sites tbody tr", (rows) => rows.map((row) => row.innerText).find((row) => row.startsWith("down.example")));
      verdict(`${view.name}: a host that only fails is not a tunnel`, /failed/.test(failing || "") && !/tunnel/.test(failing || ""), failing);
      const disk = await text(page, "#disks");
      verdict(`${view.name}: the disk is healthy`, /healthy/.test(disk), disk);
      verdict(`${view.name}: bars are drawn`, (await page.$$("#traffic rect.f-hit")).length > 0);
      const wide = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
      verdict(`${view.name}: nothing is wider than the screen`, wide[0] <= wide[1], wide);
      const [back, ink] = await page.evaluate(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color].map((color) => Number(color.match(/\d+/)[0])));
      verdict(`${view.name}: it is ${view.scheme}`, view.scheme === "dark" ? back < 60 && ink > 200 : back > 200 && ink < 60, [back, ink]);
      verdict(`${view.name}: nothing is asked of anybody else`, page.asked.every((asked) => asked.startsWith(url) || asked.startsWith("data:")), page.asked);
      verdict(`${view.name}: no complaints`, page.complaints.length === 0, page.complaints);
      verdict(`${view.name}: hostile URLs are text`, (await page.title()) === "Larder" && (await page.$("table img, table script")) === null);
      await page.screenshot({ path: `${folder}/${view.name}.png`, fullPage: true });
      await page.close();
    }
    const page = await open(views[0]);
    const unnamed = await page.$$eval("button, input, select, section", (all) => all.filter((each) => !(each.textContent.trim() || each.labels?.length || each.getAttribute("aria-label") || each.getAttribute("aria-labelledby"))).length);
    verdict("every control and section has a name", unnamed === 0, unnamed);
    await page.keyboard.press("Tab");
    verdict("the keyboard comes first to the statistics", (await page.evaluate(() => document.activeElement.textContent)) === "Skip to the statistics");
    for (const span of ["minute", "day"]) {
      for (let step = 0; step < 12 && (await page.evaluate(() => document.activeElement.textContent)) !== span; step += 1) await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      const label = await page.$eval("#traffic svg", (svg) => svg.getAttribute("aria-label"));
      verdict(`by the keyboard: requests of a ${span}`, label.includes(span === "minute" ? "each second" : "quarter"), label);
    }
  },
  async queries() {
    const page = await open(views[0]);
    const rows = () => page.$$eval("#queries tbody tr", (rows) => rows.map((row) => row.innerText.replaceAll(/\s+/g, " ")));
    const all = await rows();
    verdict("requests: the latest 25 are listed, with time, client, status and result", all.length === 25 && all.every((row) => /^\d\d:\d\d:\d\d (GET|HEAD) http:\/\/.* (hit|miss|failed).* \d{3} .* 127\.0\.0\.1$/.test(row)), all.slice(0, 3));
    await page.click("#more");
    verdict("requests: more are shown on demand", (await rows()).length === 125);
    await page.type("#f-url", "pypi.example");
    const ofHost = await rows();
    verdict("requests: by host", ofHost.length > 0 && ofHost.every((row) => row.includes("pypi.example")), ofHost.slice(0, 3));
    await page.select("#f-result", "miss");
    const misses = await rows();
    verdict("requests: by host and cache result", misses.length > 0 && misses.length < ofHost.length && misses.every((row) => row.includes(" miss")), misses.slice(0, 3));
    verdict("requests: it says how many match", /^\d+ of [\d,]+ requests$/.test(await text(page, "#queries-about")), await text(page, "#queries-about"));
    await page.click("#filters button[type=reset]");
    await page.select("#f-status", "4");
    await page.waitForFunction(() => document.querySelector("#queries .bad-status"));
    const lost = await rows();
    verdict("requests: by status", lost.length > 0 && lost.every((row) => / 404 /.test(row)), lost.slice(0, 3));
    await page.select("#f-status", "");
    await page.select("#f-client", "127.0.0.1");
    verdict("requests: by client", (await rows()).length === 25);
    await page.$eval("#why summary", (summary) => summary.click());
    verdict("a reason of misses opens its remedy", (await text(page, "#why details[open] .remedy")).length > 30, await text(page, "#why"));
    await page.$eval("#why details[open] button", (button) => button.click());
    const chosen = await page.$eval("#f-why", (select) => select.value);
    verdict("and leads to its requests", chosen !== "" && (await rows()).every((row) => row.includes(" miss")), chosen);
    await page.screenshot({ path: `${folder}/queries.png` });
    await page.click("#filters button[type=reset]");
    await page.type("#f-url", "style.css");
    const url = await page.$("#queries .link");
    await url.focus();
    await page.keyboard.press("Enter");
    const isExplained = await page.waitForFunction(() => document.querySelector("#explained .main"), { timeout: 10000 }).then(() => true, () => false);
    const steps = await text(page, "#explained");
    verdict("explain: a URL of the list is explained as larder explain does, by the keyboard", isExplained && /stored\s+in memory: status 200/.test(steps) && /from the cache \(/.test(steps), steps);
    await page.screenshot({ path: `${folder}/explained.png` });
    await page.$eval("#url", (input) => { input.value = ""; });
    await page.type("#url", "http://never.example/\n");
    const isNothing = await page.waitForFunction(() => document.getElementById("explained").innerText.includes("nothing"), { timeout: 10000 }).then(() => true, () => false);
    verdict("explain: a URL that is typed", isNothing, await text(page, "#explained"));
    await page.click("#live");
    verdict("requests: the list can be paused", (await text(page, "#live")) === "Paused");
  },
  async controls() {
    const page = await open(views[0]);
    await page.type("#url", "http://www.example.com/style.css");
    await page.click("#look button[value=url]");
    verdict("purge: what is stored is purged", await said(page, "purged"), await text(page, "#done"));
    await page.click("#look button[value=url]");
    verdict("purge: then nothing is stored", await said(page, "nothing was stored"), await text(page, "#done"));
    await page.select("#mode", "on");
    await page.click("#offline button");
    verdict("offline: it says so", await said(page, "no origin is contacted", "mode-done"), await text(page, "#mode-done"));
    const isOffline = await page.waitForFunction(() => document.getElementById("state").textContent.startsWith("offline"), { timeout: 8000 }).then(() => true, () => false);
    verdict("offline: the head of the page says so", isOffline, await text(page, "#state"));
    await page.select("#mode", "off");
    await page.click("#offline button");
    verdict("offline: and ends", await said(page, "origins are contacted", "mode-done"), await text(page, "#mode-done"));
    // Another site's page, in the same browser.
    const other = await browser.newPage();
    await other.goto("data:text/html,<title>evil</title>");
    const got = await other.evaluate(async (url) => {
      const tries = { read: ["overview.json", {}], offline: ["on", { method: "OFFLINE" }], purge: ["purge", { method: "POST", headers: { "Larder-Operator": "x", "Operator-Url": "http://www.example.com/" } }], queries: ["queries.json", {}], explain: ["explain", { method: "POST", headers: { "Larder-Operator": "x", "Operator-Url": "http://www.example.com/" } }], simple: ["purge", { method: "POST", mode: "no-cors" }] };
      const results = {};
      for (const [name, [path, options]] of Object.entries(tries)) {
        results[name] = await fetch(url + path, options).then((response) => `${response.type} ${response.status}`, () => "refused");
      }
      return results;
    }, url);
    verdict("another site can read nothing and change nothing", got.read === "refused" && got.queries === "refused" && got.explain === "refused" && got.offline === "refused" && got.purge === "refused" && /^(opaque|refused)/.test(got.simple), got);
    await new Promise((done) => setTimeout(done, 2500));
    verdict("and Larder is not offline after that", (await text(page, "#state")) === "working", await text(page, "#state"));
  },
  async again() {
    const page = await open(views[0]);
    verdict("after kill -9 the figures are there", Number.parseInt(await text(page, "#ratio-ever")) > 50, await text(page, "#ratio-ever"));
  },
};
try {
  await looks[stage]();
} catch (error) {
  console.log(`FAIL ${stage}: ${error.message}`);
}
await browser.close();
