"""Names in RDFa: terms, prefixed names and addresses become IRIs. Pure; a name that means nothing is None."""

from __future__ import annotations

import re
from collections.abc import Mapping

from turbohtml import Element

from .microdata import absolute
from .social import OPEN_GRAPH_NAMES

XHTML = "http://www.w3.org/1999/xhtml/vocab#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
TYPE = RDF + "type"
USES_VOCABULARY = "http://www.w3.org/ns/rdfa#usesVocabulary"

# The prefixes that every page may use without declaring them, and those of Open Graph and its kin.
PREFIXES: Mapping[str, str] = {
    "as": "https://www.w3.org/ns/activitystreams#",
    "cc": "http://creativecommons.org/ns#",
    "csvw": "http://www.w3.org/ns/csvw#",
    "ctag": "http://commontag.org/ns#",
    "dc": "http://purl.org/dc/terms/",
    "dc11": "http://purl.org/dc/elements/1.1/",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "dqv": "http://www.w3.org/ns/dqv#",
    "duv": "https://www.w3.org/ns/duv#",
    "fb": "http://ogp.me/ns/fb#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "gr": "http://purl.org/goodrelations/v1#",
    "grddl": "http://www.w3.org/2003/g/data-view#",
    "ical": "http://www.w3.org/2002/12/cal/icaltzd#",
    "jsonld": "http://www.w3.org/ns/json-ld#",
    "ldp": "http://www.w3.org/ns/ldp#",
    "ma": "http://www.w3.org/ns/ma-ont#",
    "oa": "http://www.w3.org/ns/oa#",
    "odrl": "http://www.w3.org/ns/odrl/2/",
    "org": "http://www.w3.org/ns/org#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "prov": "http://www.w3.org/ns/prov#",
    "qb": "http://purl.org/linked-data/cube#",
    "rdf": RDF,
    "rdfa": "http://www.w3.org/ns/rdfa#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "rev": "http://purl.org/stuff/rev#",
    "rif": "http://www.w3.org/2007/rif#",
    "rr": "http://www.w3.org/ns/r2rml#",
    "schema": "http://schema.org/",
    "sd": "http://www.w3.org/ns/sparql-service-description#",
    "sioc": "http://rdfs.org/sioc/ns#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "skosxl": "http://www.w3.org/2008/05/skos-xl#",
    "sosa": "http://www.w3.org/ns/sosa/",
    "ssn": "http://www.w3.org/ns/ssn/",
    "time": "http://www.w3.org/2006/time#",
    "twitter": "https://dev.twitter.com/cards#",
    "v": "http://rdf.data-vocabulary.org/#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "void": "http://rdfs.org/ns/void#",
    "wdr": "http://www.w3.org/2007/05/powder#",
    "wdrs": "http://www.w3.org/2007/05/powder-s#",
    "xhv": XHTML,
    "xml": "http://www.w3.org/XML/1998/namespace",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
} | {name: iri for name, iri in OPEN_GRAPH_NAMES.items() if name != "product"}

TERMS: Mapping[str, str] = {
    "describedby": "http://www.w3.org/2007/05/powder-s#describedby",
    "license": XHTML + "license",
    "role": XHTML + "role",
}
# Pages that say they are RDFa 1.0 have these for rel and rev, and no vocabulary of their own.
OLD_TERMS: Mapping[str, str] = {
    name: XHTML + name
    for name in [
        "alternate",
        "appendix",
        "bookmark",
        "chapter",
        "cite",
        "contents",
        "copyright",
        "first",
        "glossary",
        "help",
        "icon",
        "index",
        "last",
        "license",
        "meta",
        "next",
        "p3pv1",
        "prev",
        "previous",
        "role",
        "section",
        "start",
        "stylesheet",
        "subsection",
        "top",
        "up",
    ]
}

_DECLARED = re.compile(r"([^\s:]{1,100}):\s+(\S+)|\S+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TERM = re.compile(r"[^\W\d][\w./-]*")
_LONGEST = 10_000  # characters of an attribute that are read


class Names:
    """What names mean at one place of the page. Immutable; an element that declares something makes a new one."""

    __slots__ = ("base", "language", "namespaces", "old", "prefixes", "vocabulary")

    def __init__(
        self,
        base: str,
        *,
        old: bool = False,
        prefixes: Mapping[str, str] = PREFIXES,
        namespaces: Mapping[str, str] | None = None,
        vocabulary: str = "",
        language: str = "",
    ) -> None:
        self.base = base
        self.old = old  # RDFa 1.0
        self.prefixes = prefixes
        self.namespaces = namespaces or {}  # xmlns as declared, for literals that keep their markup
        self.vocabulary = vocabulary
        self.language = language

    def inside(self, element: Element) -> Names:
        """What they mean inside an element."""
        declared: dict[str, str] = {}
        namespaces: dict[str, str] = {}
        vocabulary, language = self.vocabulary, self.language
        for name in element.attrs:
            if name == "xmlns" or name.startswith("xmlns:"):
                namespaces[name] = declared[name[6:].lower()] = element.attr(name) or ""
            elif name == "xml:lang":
                language = (element.attr(name) or "").lower()
            elif name == "vocab" and not self.old:
                address = (element.attr(name) or "").strip()
                vocabulary = self.address(address) if address else ""
        if not self.old and (prefix := element.attr("prefix")):
            declared |= {
                name.lower(): iri for name, iri in _DECLARED.findall(prefix[:_LONGEST]) if name and name != "_"
            }
        declared.pop("", None)
        if not declared and not namespaces and vocabulary == self.vocabulary and language == self.language:
            return self
        return Names(
            self.base,
            old=self.old,
            prefixes={**self.prefixes, **declared} if declared else self.prefixes,
            namespaces={**self.namespaces, **namespaces} if namespaces else self.namespaces,
            vocabulary=vocabulary,
            language=language,
        )

    def listed(self, text: str | None, terms: Mapping[str, str] | None = None) -> list[str]:
        """The IRIs of an attribute that names several things: property, typeof, rel, rev."""
        words = (text or "")[:_LONGEST].split()
        return list(dict.fromkeys(iri for word in words if (iri := self.named(word, terms))))

    def named(self, word: str, terms: Mapping[str, str] | None = None) -> str | None:
        """The IRI of a term, a prefixed name or an address."""
        if ":" in word:
            if word.startswith("_:"):
                return None
            iri = self._prefixed(word)
            return iri or (word if not self.old and _SCHEME.match(word) else None)
        if self.vocabulary and _TERM.fullmatch(word):
            return self.vocabulary + word
        known = (OLD_TERMS if self.old else TERMS) if terms is None else terms
        return known.get(word.lower())

    def resource(self, text: str) -> str | None:
        """The IRI, or blank node ("_:name"), that `about` or `resource` names."""
        word = text.strip()
        if word.startswith("[") and word.endswith("]"):
            word = word[1:-1].strip()
            return word if word.startswith("_:") else self._prefixed(word)
        if word.startswith("_:"):
            return word
        return self._prefixed(word) or self.address(word)

    def address(self, text: str) -> str:
        """The address that `href` or `src` names."""
        word = text.strip()
        if not word:
            return self.base.partition("#")[0]
        joined = absolute(self.base, word)
        return joined + word[-1] if word[-1] in "#?" and not joined.endswith(word[-1]) else joined

    def _prefixed(self, word: str) -> str | None:
        prefix, colon, rest = word.partition(":")
        if not colon or rest.startswith("//"):
            return None
        iri = self.prefixes.get(prefix.lower()) if prefix else XHTML
        return None if iri is None else iri + rest
