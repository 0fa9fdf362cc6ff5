// The beginning: a token, the feed, and the first view.

import { follow } from "./feed.js";
import { html, render } from "./html.js";
import { begin, token } from "./session.js";
import { Shell } from "./shell.js";
import { update } from "./store.js";
import { apply } from "./theme.js";

apply();
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Shell} />`, root);

let problem = "";
try {
  problem = await begin();
} catch (error) {
  problem = error.message;
}
if (token() === null) {
  update({ phase: "link", problem });
} else {
  update({ phase: "live", problem: "" });
  follow();
}
// Another link in the same tab: a new beginning.
addEventListener("hashchange", () => location.hash.startsWith("#link=") && location.reload());
