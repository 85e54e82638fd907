"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

/** The text, with characters that are invisible or change the direction of text escaped; a long one is cut. */
function visible(text) {
  const short = text.length > 4000 ? `${text.slice(0, 4000)}…` : String(text);
  return short.replace(/[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, (found) =>
    found === "\n" || found === "\t" ? found : `\\u{${found.codePointAt(0).toString(16)}}`);
}

/** A new element with properties and children; a child that is a string is shown as text. */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return made;
}
