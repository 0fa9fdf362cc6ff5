// A question before something that is hard to take back.  The browser's own dialog keeps the focus inside.

import { html, useLayoutEffect, useRef, useState } from "./html.js";

/** `question`: {title, text, yes, act}; `act` may fail with a message, which is shown.  null: nothing is asked. */
export function Question({ question, onClose }) {
  const dialog = useRef(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => {
    if (question && !dialog.current.open) dialog.current.showModal();
    setProblem("");
    setBusy(false);
  }, [question]);
  if (!question) return null;
  const act = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await question.act();
      onClose();
    } catch (error) {
      setProblem(error.text ?? error.message);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} aria-labelledby="question-title" onClose=${onClose}>
    <h2 id="question-title">${question.title}</h2>
    <p>${question.text}</p>
    ${problem && html`<p role="alert" class="bad">${problem}</p>`}
    <div class="row end">
      <button onClick=${onClose} autofocus>${question.no ?? "No"}</button>
      <button class="strong" disabled=${busy} onClick=${act}>${question.yes}</button>
    </div>
  </dialog>`;
}
