// The official JavaScript client against a server: `node firecrawl_client.mjs ADDRESS KEY SITE SLOW_SITE`. Prints JSON.
import Firecrawl from "@mendable/firecrawl-js";

const [address, key, site, slow] = process.argv.slice(2);
const client = new Firecrawl({ apiKey: key, apiUrl: address });
const said = {};

const page = await client.scrape(`${site}/page/7`, { formats: ["markdown", "links"] });
said.page = { markdown: page.markdown, links: page.links.length, status: page.metadata.statusCode };
said.map = (await client.map(site, { limit: 20 })).links.length;
try {
  await client.scrape(site, { formats: ["summary"] });
} catch (error) {
  said.refused = { status: error.status, message: error.message };
}

const whole = await client.crawl(site, { limit: 120, pollInterval: 1, scrapeOptions: { formats: ["links"] } });
said.whole = { status: whole.status, documents: new Set(whole.data.map((one) => one.metadata.sourceURL)).size };
const empty = await client.crawl(site, { includePaths: ["^/none$"], limit: 2, pollInterval: 1 });
said.empty = { status: empty.status, documents: empty.data.length };
const failing = await client.crawl(`${site}/nothing`, { pollInterval: 1 });
said.failing = { status: failing.status, errors: (await client.getCrawlErrors(failing.id)).errors.length };

const begun = await client.startCrawl(slow, { limit: 100 });
let running;
do {
  running = await client.getCrawlStatus(begun.id);
} while (running.data.length === 0);
said.running = running.status;
said.active = (await client.getActiveCrawls()).crawls.map((one) => one.id).includes(begun.id);
said.cancelled = [await client.cancelCrawl(begun.id), (await client.getCrawlStatus(begun.id)).status];

const urls = [1, 2, 3].map((number) => `${slow}/page/${number}`);
const batch = await client.startBatchScrape(urls, { options: { formats: ["links"] } });
const watched = [];
await new Promise((resolve, reject) => {
  const watcher = client.watcher(batch.id, { kind: "batch", pollInterval: 600 });
  watcher.on("document", (one) => watched.push(one.metadata.sourceURL));
  watcher.on("done", resolve);
  watcher.on("error", reject);
  watcher.start().catch(reject);
});
said.watched = [...new Set(watched)].sort();
console.log(JSON.stringify(said));
process.exit(0);
