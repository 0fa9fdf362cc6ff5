// The view is the address's hash: #/jobs, #/jobs/12, #/timeline ...

import { useEffect, useState } from "./html.js";

/** [view, further parts...] of the address. */
export function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  return parts.length ? parts : ["devices"];
}

export function useRoute() {
  const [parts, setParts] = useState(route());
  useEffect(() => {
    const changed = () => setParts(route());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parts;
}
