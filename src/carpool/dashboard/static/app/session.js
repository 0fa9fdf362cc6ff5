// The token: from a link that is good once, kept for this tab only (sessionStorage), sent in a header.

const KEY = "carpool-token";

/** The token of this tab, or null. */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** Forget the token: the dashboard's process is another one, or does not know the token any more. */
export function forget() {
  sessionStorage.removeItem(KEY);
}

/** The link of the address (`#link=...`), which is taken out of the address and of the tab's history; or null. */
function takeLink() {
  const found = /^#link=(.+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return decodeURIComponent(found[1]);
}

/** Exchange the address's link for a token, where there is one.  Returns what went wrong, for people, or "". */
export async function begin() {
  const link = takeLink();
  if (link === null) return "";
  const answer = await fetch("api/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ link }),
  });
  const body = await answer.json();
  if (!answer.ok) return body.error?.message ?? `the dashboard answered ${answer.status}`;
  sessionStorage.setItem(KEY, body.token);
  return "";
}
