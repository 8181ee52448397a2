"""Pages that stand in the way, as the systems that make them write them. Each says by what name it should be known."""

from __future__ import annotations

from typing import NamedTuple

from gossamer.fetch.contract import Response
from gossamer.model.page import Headers


class Wall(NamedTuple):
    name: str  # how the words of the block begin
    kind: str
    status: int
    html: str
    headers: tuple[tuple[str, str], ...] = ()


def answer(
    html: str | bytes,
    status: int = 200,
    *headers: tuple[str, str],
    url: str = "https://shop.example/item/7",
    content_type: str = "text/html; charset=utf-8",
) -> Response:
    body = html if isinstance(html, bytes) else html.encode()
    return Response(url=url, status=status, headers=Headers((("Content-Type", content_type), *headers)), body=body)


def page(body: str, title: str = "", head: str = "") -> str:
    named = f"<title>{title}</title>" if title else ""
    return f'<!DOCTYPE html>\n<html>\n<head><meta charset="utf-8">{named}{head}</head><body>{body}</body></html>'


def script(code: str = "", src: str = "") -> str:
    return f'<script src="{src}"></script>' if src else f"<script>{code}</script>"


_AKAMAI = (
    "<HTML><HEAD>\n<TITLE>Access Denied</TITLE>\n</HEAD><BODY>\n<H1>Access Denied</H1>\n \nYou don't have permission "
    'to access "http&#58;&#47;&#47;shop&#46;example&#47;item" on this server.<P>\nReference&#32;&#35;18&#46;2d3a1402'
    "&#46;1763212000&#46;1f2e3d4c\n</BODY>\n</HTML>\n"
)
_F5 = (
    "<html><head><title>Request Rejected</title></head><body>The requested URL was rejected. Please consult with your "
    "administrator.<br><br>Your support ID is: 1234567890123456789<br><br><a href='javascript:history.back();'>"
    "[Go Back]</a></body></html>"
)

WALLS = [
    # Cloudflare
    Wall("Cloudflare challenge", "challenge", 403, page("wait", "Just a moment..."), (("cf-mitigated", "challenge"),)),
    Wall("Cloudflare challenge", "challenge", 200, page(
        "<noscript>Enable JavaScript and cookies to continue</noscript>"
        + script("(function(){window._cf_chl_opt={cvId:'3',cZone:'shop.example'};})();"), "Just a moment...")),
    Wall("Cloudflare challenge", "challenge", 503, page(
        '<form id="challenge-form" action="/?__cf_chl_jschl_tk__=1" method="POST"><input type="hidden" name="jschl_vc">'
        "</form><p>Checking your browser before accessing shop.example.</p>", "Just a moment...")),
    Wall("Cloudflare challenge", "challenge", 200, page(
        "<h1>shop.example</h1><p>Verifying you are human. This may take a few seconds.</p>"
        + script(src="/cdn-cgi/challenge-platform/scripts/x.js"), "Just a moment...")),
    Wall("Cloudflare block", "forbidden", 403, page("blocked", "Nope"), (("CF-Mitigated", "block"),)),
    Wall("Cloudflare block", "forbidden", 403, page(
        "<h1>Sorry, you have been blocked</h1><h2>You are unable to access shop.example</h2>",
        "Attention Required! | Cloudflare")),
    Wall("Cloudflare error 10xx", "forbidden", 403, page(
        "<h1>Access denied</h1><p>Error code 1020</p>", "Access denied | shop.example used Cloudflare")),
    Wall("Cloudflare error 1015", "rate", 429, page(
        '<h1>Error 1015</h1> <p>Ray ID: 8a1 </p><h2>You are being rate limited</h2>', "Access denied")),
    Wall("Cloudflare error 1015", "rate", 429, page('<h1>Error <b class="cf-error-code">1015</b></h1>', "Denied")),
    Wall("Cloudflare error 10xx", "forbidden", 403, page(
        '<h1><span class="cf-error-type">Error</span><span class="cf-error-code">1009</span></h1>', "Access denied")),
    # Akamai
    Wall("Akamai refusal", "forbidden", 403, _AKAMAI),
    Wall("Akamai refusal", "forbidden", 200, _AKAMAI),
    Wall("Akamai challenge", "challenge", 200, page(
        '<div id="sec-if-cpt-container" style="display:none"><p>Powered and protected by Akamai</p></div>'
        + script(src="/_sec/cp_challenge/ak-challenge.js"))),
    Wall("Akamai challenge", "challenge", 200, page(
        script("var i=1;"), head="<meta http-equiv=\"refresh\" content=\"5; URL='/item?bm-verify=AAQAAA'\"/>")),
    # The others, by name
    Wall("DataDome", "captcha", 403, page(
        script("var dd={'rt':'c','cid':'AHrlq','hsh':'2211','t':'bv','host':'geo.captcha-delivery.com'}")
        + script(src="https://ct.captcha-delivery.com/c.js"), "shop.example")),
    Wall("DataDome", "captcha", 403, page(
        '<p id="cmsg">Please enable JS and disable any ad blocker</p>', "Shop"), (("X-DataDome", "protected"),)),
    Wall("DataDome", "captcha", 403, '{"url":"https://geo.example/captcha"}',
         (("X-DD-B", "1"), ("Content-Type", "application/json"))),
    Wall("HUMAN (PerimeterX)", "captcha", 403, page(
        '<div id="px-captcha"></div>' + script("window._pxAppId = 'PX1';"), "Access to this page has been denied")),
    Wall("HUMAN (PerimeterX)", "captcha", 200, page(
        "<p>Press &amp; Hold to confirm you are a human (and not a bot).</p>", "Robot or human?")),
    Wall("Imperva (Incapsula)", "challenge", 200, page(
        '<iframe id="main-iframe" src="/_Incapsula_Resource?SWUDNSAI=31&xinfo=1" width="100%"></iframe>')),
    Wall("Imperva (Incapsula)", "challenge", 403, page("Request unsuccessful. Incapsula incident ID: 1110-0123")),
    Wall("Imperva (Incapsula)", "challenge", 403, page(script(src="/_Incapsula_Resource?SWJIYLWA=719d"), "Wait")),
    Wall("Imperva (Distil)", "challenge", 200, page(
        "<h1>Pardon Our Interruption...</h1><p>As you were browsing, something about your browser made us think you "
        "might be a bot.</p>", "Pardon Our Interruption")),
    Wall("Kasada", "challenge", 429, page(
        script("window.KPSDK={};KPSDK.now=Date.now") + script(src="/149e9513-01fa-4fb0-aad4-566afd725d1b/x/ips.js"))),
    Wall("Kasada", "challenge", 429, page(script("go()")), (("X-Kpsdk-Ct", "02abc"),)),
    Wall("AWS WAF challenge", "challenge", 202, "", (("x-amzn-waf-action", "challenge"),)),
    Wall("AWS WAF captcha", "captcha", 405, page("x", "Human Verification"), (("X-Amzn-Waf-Action", "Captcha"),)),
    Wall("AWS WAF", "challenge", 202, page(
        script('window.awsWafCookieDomainList=[];window.gokuProps = {"key":"AQID"};') + "<div></div>")),
    Wall("AWS WAF", "challenge", 405, page(script(src="https://1a2b.token.awswaf.com/1a2b/challenge.js"))),
    Wall("Sucuri challenge", "challenge", 200, page(
        script("var s={};eval('sucuri_cloudproxy_js=1');"), "You are being redirected...")),
    Wall("Sucuri firewall", "forbidden", 403, page("<h1>No</h1>", "Access Denied - Sucuri Website Firewall")),
    Wall("Sucuri firewall", "forbidden", 403, page("no"), (("X-Sucuri-Block", "XSS01"),)),
    Wall("DDoS-Guard", "challenge", 403, page('<h1 id="ddg-l10n-title">Checking</h1>', "DDoS-Guard")),
    Wall("DDoS-Guard", "challenge", 403, page(
        script(src="/.well-known/ddos-guard/js-challenge/index.js"), "shop.example")),
    Wall("DDoS-Guard", "challenge", 403, page(script(src="https://check.ddos-guard.net/check.js"), "shop.example")),
    Wall("F5 BIG-IP", "forbidden", 200, _F5),
    Wall("F5 (Shape)", "challenge", 200, page(
        script('window["bobcmn"] = "101110";')
        + "<noscript>Please enable JavaScript to view the page content.</noscript>")),
    Wall("Anubis", "challenge", 200, page(
        '<h1>Making sure you&#39;re not a bot!</h1><img src="/.within.website/x/cmd/anubis/static/img/pensive.webp">'
        '<script id="anubis_challenge" type="application/json">{"rules":{"difficulty":4}}</script>',
        "Making sure you&#39;re not a bot!")),
    Wall("go-away", "challenge", 200, page(
        '<img src="/.well-known/.git.example/git/go-away/cmd/go-away/assets/static/logo.png"><p>Loading challenge</p>',
        "Checking you are not a bot")),
    Wall("Vercel checkpoint", "challenge", 429, page("", "Vercel Security Checkpoint")),
    Wall("Vercel checkpoint", "challenge", 403, "", (("X-Vercel-Mitigated", "challenge"),)),
    Wall("Vercel firewall", "forbidden", 403, page("Forbidden"), (("x-vercel-mitigated", "deny"),)),
    Wall("Fastly challenge", "challenge", 200, page(script(src="/_fs-ch-1T1wmsGaOg/s.js"), "Client Challenge")),
    Wall("StackPath", "challenge", 200, page(
        script("document.write('<img src=\"/sbbi/?sbbpg=sbbShell&gprid=1\">')"), "Site verification")),
    Wall("StackPath", "forbidden", 406, page(
        "<p>This website is using a security service to protect itself. Protected by StackPath</p>", "Hold on")),
    Wall("SiteGround", "captcha", 202, page(
        "", head='<meta http-equiv="refresh" content="0;/.well-known/sgcaptcha/?r=%2F&y=ipc:1"></meta>')),
    Wall("Wordfence", "forbidden", 503, page(
        "<h2>Your access to this site has been limited by the site owner</h2>", "Your access has been limited")),
    Wall("ModSecurity", "forbidden", 406, page(
        "<h1>Not Acceptable!</h1><p>An appropriate representation could not be found. This error was generated by "
        "Mod_Security.</p>", "Not Acceptable!")),
    Wall("Google, unusual traffic", "captcha", 429, page(
        "<p>Our systems have detected unusual traffic from your computer network. This page checks to see if it's "
        "really you sending the requests, and not a robot.</p>", "https://www.search.example/search?q=a")),
    Wall("Amazon robot check", "captcha", 200, page(
        "<h4>Type the characters you see in this image:</h4>"
        '<form method="get" action="/errors/validateCaptcha" name=""><input name="field-keywords"></form>', "Shop")),
    Wall("Amazon robot check", "captcha", 503, page("<p>To discuss automated access, write to us.</p>", "Robot Check")),
    Wall("Alibaba punish page", "captcha", 200, page(
        script("location.href='/_____tmd_____/punish?x5secdata=xc1'"), "")),
    Wall("Yandex SmartCaptcha", "captcha", 200, page(
        '<form method="POST" action="/checkcaptcha?key=1"><input type="checkbox"> Captcha</form>', "Вы не робот?")),
    Wall("Baidu check", "captcha", 200, page(
        script(src="https://wappass.baidu.com/static/captcha/tuxing.js"), "百度安全验证")),
    # No name, only the words
    Wall("reCAPTCHA", "captcha", 200, page(
        '<p>Please solve this.</p><div class="g-recaptcha" data-sitekey="6L"></div>', "Are you a robot?")),
    Wall("hCaptcha", "captcha", 200, page(
        '<div class="box h-captcha" data-sitekey="1"></div><p>Please verify you are human.</p>'
        + script(src="https://js.hcaptcha.com/1/api.js"), "shop.example")),
    Wall("Turnstile", "captcha", 403, page('<div class="cf-turnstile" data-sitekey="0x4"></div>', "One more step")),
    Wall("GeeTest", "captcha", 200, page(
        script(src="https://static.geetest.com/v4/gt4.js") + "<p>Prove that you're not a robot</p>", "Verification")),
    Wall("Arkose", "captcha", 403, page(script(src="https://client-api.arkoselabs.com/v2/1/api.js"), "Challenge")),
    Wall("a check for humans", "captcha", 200, page("<h1>Confirm that you are human</h1>", "Human Verification")),
    Wall("a check for humans", "captcha", 403, page("<h1>安全验证</h1>", "验证")),
    Wall("a check of the browser", "challenge", 200, page(
        "<p>Please enable JavaScript and cookies to continue.</p>", "Checking your browser")),
    Wall("an access refusal", "forbidden", 200, page("<p>You have been blocked.</p>", "Access denied")),
    Wall("a rate limit", "rate", 200, page("<p>Too many requests, try again later.</p>", "429 Too Many Requests")),
    # Walls and shells of no make
    Wall("a page that only asks to log in", "login", 200, page(
        '<h1>Sign in</h1><form><input type="email" name="email"><input type="password" name="pw"></form>',
        "Sign in | Shop")),
    Wall("a page that only asks to log in", "login", 403, page(
        "<p>Please log in to see prices.</p><form><INPUT NAME=u><INPUT TYPE = 'password' NAME=p></form>", "Shop")),
    Wall("a page that only asks to log in", "login", 200, page(
        '<form><input name="email" type="email"><button>Next</button></form>', "Anmelden - Laden")),
    Wall("an empty element", "shell", 200, page(
        '<noscript>You need to enable JavaScript to run this app.</noscript><div id="root"></div>'
        + script(src="/static/js/main.1a2b.js"), "React App")),
    Wall("an empty element", "shell", 200, page('<div id="__next"></div>' + script(src="/_next/static/a.js"), "Shop")),
    Wall("an empty element", "shell", 200, page(
        "<div class=x id=app data-v>\n <!-- built files will be auto injected -->\n</div>" + script(src="/a"), "s")),
    Wall("an empty element", "shell", 200, page("<app-root></app-root>" + script(src="main.js"), "Shop")),
    Wall("2 scripts and almost no text", "shell", 200, page(
        "<noscript>This site requires JavaScript.</noscript><div>Loading</div>" + 2 * script(src="a"), "S")),
    Wall("4 scripts and almost no text", "shell", 200, page(
        "<div ui-view></div>" + 4 * script(src="/a.js"), "Shop")),
]  # fmt: skip
