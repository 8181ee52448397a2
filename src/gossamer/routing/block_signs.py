"""What anti-bot systems, walls and shells look like: a table; blocks.py judges by it.

To teach Gossamer a new one, add a line here and a page to the tests. Patterns are lower case, because they are matched
against lower-case bytes. Every repetition in them is bounded, because the bytes come from strangers. They match in:

    header   "name: pattern" - the value of that header
    title    the content of <title>
    markup   tags and scripts: the page as it was sent, without what a person would read
    text     what a person would read: no tags, no scripts, white space squeezed

A `sure` sign is enough alone. A hint needs another hint, or a status that refuses. Ordinary pages contain many of these
words (an article about captchas, a contact form with a widget), so a sign is sure only if nobody but the system itself
writes it; a sentence that people quote is a hint.
"""

from __future__ import annotations

import re

import msgspec

FORBIDDEN, RATE, CHALLENGE, CAPTCHA, LOGIN, SHELL, SHRUNK = KINDS = (
    "forbidden", "rate", "challenge", "captcha", "login", "shell", "shrunk",
)  # fmt: skip
SLOW, PROXY, RENDER, IDENTITY = CURES = ("slow", "proxy", "render", "identity")
CURE_OF = {
    FORBIDDEN: PROXY,
    RATE: SLOW,
    CHALLENGE: RENDER,
    CAPTCHA: PROXY,
    LOGIN: IDENTITY,
    SHELL: RENDER,
    SHRUNK: PROXY,
}


class Signature(msgspec.Struct, frozen=True):
    """One sign: any of its patterns. `cure` is what may help, if it differs from the usual cure for its kind."""

    name: str
    kind: str
    where: str  # header, title, markup, text
    patterns: tuple[bytes, ...]
    sure: bool
    cure: str = ""


def _sure(name: str, kind: str, where: str, *patterns: bytes) -> Signature:
    return Signature(name, kind, where, patterns, True)


def _hint(name: str, kind: str, where: str, *patterns: bytes, cure: str = "") -> Signature:
    return Signature(name, kind, where, patterns, False, cure)


# What a status says if nothing in the page says more.
STATUSES: dict[int, tuple[str, str]] = {
    401: (LOGIN, "the server asks for credentials"),
    403: (FORBIDDEN, "the server refuses this visitor"),
    418: (FORBIDDEN, "the server calls this visitor a teapot"),
    429: (RATE, "too many requests"),
    430: (RATE, "too many requests (Shopify's own status)"),
    451: (FORBIDDEN, "not available for legal reasons, often by country"),
    503: (RATE, "the server is too busy for this visitor"),
    509: (RATE, "the site's bandwidth is used up"),
    529: (RATE, "the site is overloaded"),
    999: (FORBIDDEN, "the server refuses this visitor (LinkedIn's own status)"),
}

HEADERS = (
    _sure("Cloudflare challenge", CHALLENGE, "header", rb"cf-mitigated: challenge"),
    _sure("Cloudflare block", FORBIDDEN, "header", rb"cf-mitigated: block"),
    _sure("Vercel checkpoint", CHALLENGE, "header", rb"x-vercel-mitigated: challenge"),
    _sure("Vercel firewall", FORBIDDEN, "header", rb"x-vercel-mitigated: deny"),
    _sure("AWS WAF captcha", CAPTCHA, "header", rb"x-amzn-waf-action: captcha"),
    _sure("AWS WAF challenge", CHALLENGE, "header", rb"x-amzn-waf-action: challenge"),
    _sure("Sucuri firewall", FORBIDDEN, "header", rb"x-sucuri-block: ."),
    _hint("Kasada", CHALLENGE, "header", rb"x-kpsdk-ct: ."),
    _hint("DataDome", CAPTCHA, "header", rb"x-dd-b: .", rb"x-datadome: protected"),
)

REFUSAL = "an access refusal"  # says no more than a refusing status does

# Named systems first, common words last: the first match names the block. Every pattern begins with literal letters:
# only then is the search fast.
PAGES = (
    # Cloudflare. Ordinary pages behind it also load from /cdn-cgi/challenge-platform/: that alone means nothing.
    _sure("Cloudflare challenge", CHALLENGE, "markup", rb"_cf_chl_opt\b", rb"challenge-platform/h/\w{1,3}/orchestrate/",
          rb'id="challenge-form"', rb'id="cf-challenge-form"', rb'name="jschl[-_]vc"'),
    _hint("Cloudflare error 1015", RATE, "text", rb"error 1015\b", rb"error code:? 1015\b"),
    _hint("Cloudflare error 10xx", FORBIDDEN, "text", rb"error 10(?:0[5-9]|10|12|20)\b",
          rb"error code:? 10(?:0[5-9]|10|12|20)\b"),
    _sure("Cloudflare block", FORBIDDEN, "title", rb"^attention required! \| cloudflare"),
    _hint("Cloudflare challenge", CHALLENGE, "title", rb"^just a moment\.\.\.", rb"^one moment, please"),
    _hint("Cloudflare challenge", CHALLENGE, "markup", rb"/cdn-cgi/challenge-platform/(?!scripts/jsd/)"),
    _hint("Cloudflare challenge", CHALLENGE, "text", rb"checking your browser before",
          rb"checking if the site connection is secure", rb"you are human\. this may take a few"),
    # Akamai
    _hint("Akamai refusal", FORBIDDEN, "text", rb"you don't have permission to access .{0,600}reference ?#",
          cure=IDENTITY),
    _sure("Akamai challenge", CHALLENGE, "markup", rb"sec-if-cpt-", rb"sec-cpt-if", rb"\?bm-verify=", rb"&bm-verify="),
    # DataDome, HUMAN (PerimeterX), Imperva (Incapsula, Distil), Kasada
    _sure("DataDome", CAPTCHA, "markup", rb"captcha-delivery\.com/", rb"var dd ?= ?\{['\"]rt['\"] ?:"),
    _sure("HUMAN (PerimeterX)", CAPTCHA, "markup", rb'id="px-captcha', rb"id='px-captcha", rb"_pxblockscript",
          rb"captcha\.px-cdn\.net", rb"captcha\.px-cloud\.net"),
    _hint("HUMAN (PerimeterX)", CAPTCHA, "markup", rb"window\._pxappid"),
    _hint("HUMAN (PerimeterX)", CAPTCHA, "text", rb"press & hold", rb"press and hold"),
    _hint("HUMAN (PerimeterX)", CAPTCHA, "title", rb"^access to this page has been denied", rb"^robot or human\?"),
    _hint("Imperva (Incapsula)", CHALLENGE, "text", rb"incapsula incident id"),
    _sure("Imperva (Incapsula)", CHALLENGE, "markup", rb"<iframe[^<>]{1,200}_incapsula_resource\?"),
    _hint("Imperva (Incapsula)", CHALLENGE, "markup", rb"/_incapsula_resource\?"),
    _hint("Imperva (Distil)", CHALLENGE, "title", rb"^pardon our interruption"),
    _hint("Imperva (Distil)", CHALLENGE, "text", rb"something about your browser made us think you"),
    _sure("Kasada", CHALLENGE, "markup", rb"window\.kpsdk ?=", rb"/149e9513-01fa-4fb0-aad4-566afd725d1b/"),
    # Firewalls and proofs of work
    _sure("AWS WAF", CHALLENGE, "markup", rb"window\.gokuprops ?=", rb"awswafcookiedomainlist"),
    _hint("AWS WAF", CHALLENGE, "markup", rb"\.awswaf\.com/", rb"awswafintegration"),
    _sure("Sucuri challenge", CHALLENGE, "markup", rb"sucuri_cloudproxy_js"),
    _sure("Sucuri firewall", FORBIDDEN, "title", rb"^(?:access denied - )?sucuri website firewall"),
    _sure("DDoS-Guard", CHALLENGE, "title", rb"^ddos-guard$"),
    _sure("DDoS-Guard", CHALLENGE, "markup", rb"/\.well-known/ddos-guard/js-challenge", rb"data-ddg-origin"),
    _hint("DDoS-Guard", CHALLENGE, "markup", rb"check\.ddos-guard\.net/"),
    _hint("F5 BIG-IP", FORBIDDEN, "text", rb"the requested url was rejected\..{0,120}support id", cure=IDENTITY),
    _sure("F5 (Shape)", CHALLENGE, "markup", rb'window\["bobcmn"\]', rb"<apm_do_not_touch>"),
    _sure("Anubis", CHALLENGE, "markup", rb'id="anubis_challenge"', rb"/\.within\.website/x/cmd/anubis/"),
    _sure("go-away", CHALLENGE, "markup", rb"/\.well-known/[^\"' >]{1,80}/go-away/"),
    _sure("Vercel checkpoint", CHALLENGE, "title", rb"^vercel security checkpoint"),
    _sure("Fastly challenge", CHALLENGE, "markup", rb"/_fs-ch-\w{4,40}/"),
    _hint("Fastly challenge", CHALLENGE, "title", rb"^client challenge$"),
    _sure("StackPath", CHALLENGE, "markup", rb"/sbbi/\?sbbpg=", rb"sbbi-snitch"),
    _hint("StackPath", FORBIDDEN, "text", rb"protected by stackpath", rb"using a security service.{0,80}stackpath"),
    _sure("SiteGround", CAPTCHA, "markup", rb"/\.well-known/sgcaptcha/"),
    _hint("Wordfence", FORBIDDEN, "text", rb"your access to this (?:site|service) has been (?:temporarily )?limited"),
    _hint("ModSecurity", FORBIDDEN, "text", rb"generated by mod_?security", cure=IDENTITY),
    # Sites with their own block pages
    _hint("Google, unusual traffic", CAPTCHA, "text", rb"our systems have detected unusual traffic"),
    _sure("Amazon robot check", CAPTCHA, "markup", rb'action="/errors/validatecaptcha', rb"opfcaptcha"),
    _sure("Amazon robot check", CAPTCHA, "title", rb"^robot check$"),
    _sure("Alibaba punish page", CAPTCHA, "markup", rb"/_____tmd_____/punish", rb"x5secdata"),
    _sure("Yandex SmartCaptcha", CAPTCHA, "markup", rb'action="/checkcaptcha'),
    _sure("Baidu check", CAPTCHA, "markup", rb"wappass\.baidu\.com/static/captcha"),
    # Widgets. Contact forms have them too, so each is only a hint.
    _hint("reCAPTCHA", CAPTCHA, "markup", rb"g-recaptcha\b", rb"/recaptcha/(?:api|enterprise)\.js"),
    _hint("hCaptcha", CAPTCHA, "markup", rb"h-captcha\b", rb"hcaptcha\.com/1/api\.js"),
    _hint("Turnstile", CAPTCHA, "markup", rb"cf-turnstile\b", rb"challenges\.cloudflare\.com/turnstile"),
    _hint("GeeTest", CAPTCHA, "markup", rb"geetest\.com/(?:v4/)?gt\d?\.js", rb"initgeetest4?\(", rb"geetest_captcha"),
    _hint("Arkose", CAPTCHA, "markup", rb"arkoselabs\.com/", rb"funcaptcha\.com/"),
    # Words that many systems share
    _hint("a check for humans", CAPTCHA, "title", rb"\bare you (?:a robot|a human|human|not a robot)",
          rb"\bcaptcha\b", rb"human verification", rb"\bverify (?:that )?you", rb"security (?:check|verification)$",
          rb"not a (?:robot|bot)\b", rb"bot verification", "робот|验证|驗證|認証|roboter|pas un robot".encode()),
    _hint("a check for humans", CAPTCHA, "text", rb"are you a (?:robot|human)\b",
          rb"confirm (?:that )?you(?: are|'re) (?:a )?(?:human|not )",
          rb"verify (?:that )?you(?: are|'re) (?:a )?(?:human|not )",
          rb"prove (?:that )?you(?: are|'re) (?:a )?(?:human|not )",
          rb"prove your humanity", rb"i'm not a robot", rb"i am not a robot", rb"not a robot\b",
          rb"type the characters you see", rb"enter the characters you see", rb"je ne suis pas un robot",
          rb"kein roboter", rb"no soy un robot", "вы не робот".encode(), "安全验证".encode(), "人机验证".encode()),
    _hint("a check of the browser", CHALLENGE, "title", rb"^checking (?:you|your browser)\b", rb"^ddos protection\b",
          rb"\bbrowser check", rb"^making sure you're not"),
    _hint("a check of the browser", CHALLENGE, "text", rb"enable javascript and cookies", rb"javascript and reload",
          rb"javascript and refresh", rb"enable cookies and javascript", rb"enable js and disable any ad blocker",
          rb"verifying your browser", rb"checking your browser"),
    _hint("a rate limit", RATE, "title", rb"^(?:error )?(?:429\b[ -]{0,9})?too many requests",
          rb"^rate limit exceeded"),
    _hint("a rate limit", RATE, "text", rb"too many requests", rb"you are being rate limited", rb"rate limit exceeded"),
    _hint(REFUSAL, FORBIDDEN, "title", rb"^(?:403\b[ -]{0,9})?(?:access (?:is )?denied|forbidden)\b",
          rb"^request (?:blocked|rejected)", rb"^(?:you have been )?blocked$", rb"^sorry, you have been blocked"),
    _hint(REFUSAL, FORBIDDEN, "text", rb"you have been blocked", rb"your ip address (?:has been|is) b",
          rb"your ip (?:has been|is) b(?:locked|anned)", rb"automated (?:access|traffic|requests) ",
          rb"request blocked\.", rb"you don't have permission to access"),
)  # fmt: skip

# A title without any of these needs no closer check. Whole words, or parts of words in scripts without spaces.
HOT_WORDS = frozenset(
    b"moment moment... moment, denied denied. forbidden blocked robot robot? human? bot bot? bot! bots captcha "
    b"challenge challenge... checkpoint verify verifying verification interruption interruption... attention checking "
    b"check firewall ddos-guard ddos requests rejected exceeded roboter login log-in log sign signin anmelden "
    b"einloggen connexion accedi connecter iniciar inloggen zaloguj".split()
)
HOT_PARTS = re.compile("робот|验证|驗證|認証|登录|登入|ログイン|вход|войти".encode())

# Login walls
LOGIN_TITLE = re.compile(
    rb"\b(?:log[ -]?in|log on|sign[ -]?in|anmelden|einloggen|anmeldung|se connecter|connexion|identifiez|iniciar sesi"
    rb"|accedi|fazer login|inloggen|zaloguj)|" + "登录|登入|ログイン|войти|^вход".encode()
)
LOGIN_TEXT = re.compile(
    rb"(?:please|you (?:must|need to|have to)|to continue,?) (?:be logged in|log ?in|sign ?in)"
    rb"|(?:log|sign) ?in to (?:continue|view|see|access)|members only"
    rb"|bitte (?:melden sie sich an|anmelden|einloggen)|veuillez vous connecter"
)
LOGIN_FIELD = re.compile(rb"""<input\b[^<>]{0,500}\btype\s{0,20}=\s{0,20}["']?password\b""")
NAME_FIELD = re.compile(
    rb"""<input\b[^<>]{0,500}\b(?:type\s{0,20}=\s{0,20}["']?email\b"""
    rb"""|name\s{0,20}=\s{0,20}["']?(?:user\w{0,60}|login|e-?mail|session_key)\b)"""
)
LOGIN_PATH = re.compile(
    r"(?i)(?:^|[/._-])(?:log[-_]?in|sign[-_]?in|sign[-_]?up|log[-_]?on|auth|authorize|authenticate|oauth2?|sso|register|"
    r"password|anmelden|connexion)(?:$|[/._-])"
)
# Where a page redirects a visitor who is not logged in. Narrower than the above: shops redirect to many words.
LOGIN_REDIRECT = re.compile(
    r"(?i)(?:^|[/._-])(?:log[-_]?in|sign[-_]?in|log[-_]?on|sso|anmelden|einloggen|connexion|iniciar-sesion)"
    r"(?:$|[/._;-])|/(?:oauth2?|openid-connect)/(?:v\d/)?auth(?:orize)?$"
)

# Shells: an empty element that scripts fill.
EMPTY_ROOT = re.compile(
    rb"""<(div|main|section|span)\b[^<>]{0,200}\bid\s{0,20}=\s{0,20}["']?"""
    rb"""(?:root|app|__next|__nuxt|___gatsby|react-root|reactroot|vue-app|app-root|approot"""
    rb"""|app-container|react-app|react_app|main-app|application|q-app|svelte|spa|mount|content-root)"""
    rb"""["']?(?:\s[^>]{0,200})?>(?:\s|&nbsp;|<!--[^>]{0,200}-->){0,50}</\1>"""
    rb"""|<(app-root|my-app|ion-app|app|flt-glass-pane)\b[^>]{0,200}>(?:\s|<!--[^>]{0,200}-->){0,50}</\2>"""
)
NEEDS_SCRIPTS = re.compile(
    rb"(?:you need to |please |must )(?:enable|turn on|activate) javascript"
    rb"|javascript (?:is |must be )?(?:required|enabled|disabled)"
    rb"|(?:requires|without|needs) javascript|bitte aktivieren sie javascript"
)
# A shell with embedded data for machines is a page after all. The two patterns are searched separately, because a
# single pattern over the whole distance would rescan it for every beginning.
DATA_BEGINS = re.compile(rb"application/ld\+json[^{]{0,80}\{")
DATA_WITHIN = 1500  # bytes from there to what it is about
DATA_OF_A_THING = re.compile(
    rb""""@type"\s{0,20}:\s{0,20}(?:\[\s{0,20})?"[^"]{0,40}"""
    rb"""(?:product|article|recipe|event|jobposting|offer|book|movie|posting)\""""
)
