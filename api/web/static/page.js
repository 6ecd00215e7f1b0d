// What htmx does not do: say what went wrong, rest while nobody looks, and take a dropped file.
"use strict";
(() => {
  const LARGE = 20 * 1000 * 1000; // bytes; a larger file is looked at only when asked to
  const POLLS = "#batches, #questions, #events, article.card[hx-get]";
  const notice = document.getElementById("notice");
  let away = false; // whether the notice says that the server does not answer

  function say(text, isAway = false) {
    notice.textContent = text;
    notice.hidden = !text;
    away = isAway;
  }

  const isPoll = (event) => event.detail.requestConfig?.verb === "get" && event.detail.elt.matches(POLLS);

  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (isPoll(event) && document.hidden) event.preventDefault();
    else if (!isPoll(event)) say("");
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (away && event.detail.successful) say("");
    if (event.detail.elt.id === "upload") sending.hidden = true;
  });
  document.body.addEventListener("htmx:sendError", () => say("The server does not answer.", true));
  document.body.addEventListener("htmx:responseError", (event) => {
    const { xhr } = event.detail;
    if (xhr.status === 401) return window.location.reload();
    let detail = `The server answered with status ${xhr.status}.`;
    try {
      detail = JSON.parse(xhr.responseText).detail ?? detail;
    } catch { /* no problem document: a proxy's page, for example */ }
    if (event.detail.elt.id === "look") document.getElementById("found").replaceChildren();
    say(detail, isPoll(event));
    if (!isPoll(event)) notice.scrollIntoView({ block: "nearest" });
  });

  const form = document.getElementById("upload");
  const sending = document.getElementById("sending");
  if (!form) return;
  const input = document.getElementById("file");
  const drop = document.getElementById("drop");

  input.addEventListener("change", () => {
    document.getElementById("found").replaceChildren();
    say("");
    if (input.files.length && input.files[0].size <= LARGE) htmx.trigger("#look", "click");
  });
  form.addEventListener("htmx:xhr:progress", (event) => {
    const { loaded, total, lengthComputable } = event.detail;
    if (!lengthComputable || event.target !== form) return;
    sending.hidden = loaded >= total;
    sending.value = (100 * loaded) / total;
  });
  // a file that misses the zone must not replace the page
  for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
  for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, () => drop.classList.add("over"));
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    if (event.dataTransfer.files.length !== 1) return say("Drop one file at a time.");
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
})();
