"""Pages that need a browser, and pages that are made to hurt one. They are put on a hostile site with `dress`."""

from __future__ import annotations

from .hostile_server import Call, HostileSite, head

RENDERED = """<div id=root></div><script>
addEventListener("load", () => fetch("/data.json").then(answer => answer.json()).then(data => {
  root.innerHTML = data.names.map(name => `<p class=name>${name}</p>`).join("");
}));
</script>"""
LATE = (
    """<script>setTimeout(() => document.body.insertAdjacentHTML("beforeend", "<p id=late>late</p>"), 1200)</script>"""
)
ACTED = """<style>body { height: 6000px }</style>
<button id=more onclick="out.textContent += 'clicked '">More</button>
<input id=word oninput="echo.textContent = word.value"
  onkeydown="if (event.key === 'Enter') out.textContent += 'entered '">
<p id=out></p><p id=echo></p><p id=depth>0</p>
<script>addEventListener("scroll", () => depth.className = scrollY > 0 ? "deep" : "")</script>"""
HEAVY = """<link rel=stylesheet href=/style.css><img src=/picture.png><video src=/film.mp4 autoplay></video>
<style>@font-face { font-family: F; src: url(/font.woff2) } p { font-family: F }</style><p>text</p>
<script src=/script.js></script>"""
EATER = "<p>eats</p><script>const kept = []; while (true) kept.push(new Array(100000).fill(Math.random()))</script>"
BUFFER_EATER = """<p>eats</p><script>const kept = [];
setInterval(() => kept.push(new Uint8Array(32 << 20).fill(7)), 20)</script>"""
NUISANCE = """<p id=here>here</p><script>
onbeforeunload = event => { event.preventDefault(); return "stay" };
alert("one"); confirm("two"); prompt("three"); window.open("/nuisance-window"); print();
Notification.requestPermission().catch(() => 0); navigator.geolocation.getCurrentPosition(() => 0, () => 0);
document.body.insertAdjacentHTML("beforeend", "<p id=done>done</p>");
</script>"""
GREEDY = """<p id=here>here</p><script>
for (let i = 0; i < 900; i++) fetch("/many?" + i).catch(() => 0);
</script>"""


def dress(site: HostileSite, canary: str) -> None:
    """Put all pages of this file on the site. `canary` is an address that no page may reach."""
    pages = {
        "/rendered": RENDERED,
        "/late": LATE,
        "/acted": ACTED,
        "/heavy": HEAVY,
        "/loop": "<p>before</p><script>while (true) {}</script>",
        "/alerts": "<p>before</p><script>while (true) alert('again')</script>",
        "/eater": EATER,
        "/buffer-eater": BUFFER_EATER,
        "/nuisance": NUISANCE,
        "/greedy": GREEDY,
        "/never-quiet": "<p id=here>here</p><script>fetch('/hang'); setInterval(fetch, 150, '/data.json')</script>",
    }
    for path, html in pages.items():
        site.show(path, f"<!doctype html><title>{path}</title><body>{html}")
    site.show("/tries", f"<!doctype html><title>tries</title><body><p id=here>here</p>{attempts(canary)}")
    for path, html in _moves(canary).items():
        site.show(path, f"<!doctype html><title>{path}</title><body><p id=here>here</p>{html}")
    site.show("/data.json", '{"names": ["Ada", "Grace"]}', kind="application/json")
    site.show("/style.css", "p { color: red }", kind="text/css")
    site.show("/script.js", "document.title = 'by script'", kind="text/javascript")
    site.show(
        "/worker.js", f"addEventListener('install', () => fetch('{canary}?service-worker'))", kind="text/javascript"
    )
    site.show("/to-canary", "", f"Location: {canary}", status=302)
    site.shown["/hang"] = _hang


def attempts(target: str) -> str:
    """Every way in which a page could try to reach an address without leaving itself. Each leaves its name there."""
    name = target.split("/")[2]
    return f"""<iframe src='{target}?iframe'></iframe><iframe src='/to-canary'></iframe>
<img src='{target}?image'><img src='/to-canary'>
<link rel=stylesheet href='{target}?style'><script src='{target}?script'></script>
<link rel=prefetch href='{target}?prefetch'><link rel=prerender href='{target}?prerender'>
<link rel=preconnect href='{target}'><link rel=dns-prefetch href='{target}'>
<script>
const quietly = deed => {{ try {{ Promise.resolve(deed()).catch(() => 0) }} catch (error) {{ }} }};
quietly(() => fetch("{target}?fetch", {{mode: "no-cors"}}));
quietly(() => navigator.sendBeacon("{target}?beacon", "x"));
quietly(() => {{ const x = new XMLHttpRequest(); x.open("GET", "{target}?xhr"); x.send() }});
quietly(() => new WebSocket("{target.replace("http:", "ws:")}?socket"));
quietly(() => new EventSource("{target}?events"));
quietly(() => new Worker(URL.createObjectURL(new Blob([`fetch("{target}?worker", {{mode: "no-cors"}})`]))));
quietly(() => navigator.serviceWorker.register("/worker.js"));
quietly(() => window.open("{target}?window"));
quietly(() => {{
  const peer = new RTCPeerConnection({{
    iceServers: [{{urls: "turn:{name}?transport=tcp", username: "a", credential: "b"}}]
  }});
  peer.createDataChannel("x");
  return peer.createOffer().then(offer => peer.setLocalDescription(offer));
}});
</script>"""


# Those of them that reach an address which is allowed, so that a test can tell that they try at all.
WAYS = ("iframe", "image", "style", "script", "prefetch", "fetch", "beacon", "xhr", "socket", "events", "worker")


def _moves(canary: str) -> dict[str, str]:
    """Pages that go to the canary themselves, by path."""
    return {
        "/move/location": f"<script>location = '{canary}'</script>",
        "/move/refresh": f"<meta http-equiv=refresh content='0;url={canary}'>",
        "/move/form": f"<form id=f action='{canary}' method=post><input name=a></form><script>f.submit()</script>",
        "/move/redirected": "<script>location = '/to-canary'</script>",
    }


MOVES = tuple(_moves("http://canary.localhost:1/"))


async def _hang(call: Call) -> None:
    """Answers with a head and the beginning of a page, and then says nothing for ever."""
    await call.send(head(200) + b"<!doctype html><title>hang</title><p>begun</p>")
    await call.writer.wait_closed()
