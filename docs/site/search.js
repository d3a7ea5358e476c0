// Finds sections that hold every word of the search. PAGES has [address, page, heading, text] of each section.
const box = document.getElementById("search");
const found = document.getElementById("found");
const root = document.body.dataset.root;

function rank(words, [address, page, heading, text]) {
  const title = `${heading} ${page}`.toLowerCase();
  const body = text.toLowerCase();
  const aside = /decisions\/|CHANGELOG/.test(address) ? 0.4 : 1; // guides and reference come first
  let sum = 0;
  for (const word of words) {
    if (title.includes(word)) sum += heading.toLowerCase().includes(word) ? 20 : 8;
    else if (body.includes(word)) sum += Math.min(5, body.split(word).length - 1);
    else return 0;
  }
  return sum * aside;
}

function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
  found.replaceChildren();
  if (!words.length) return;
  const ranked = PAGES.map((section) => [rank(words, section), section]).filter(([sum]) => sum);
  ranked.sort((one, other) => other[0] - one[0]);
  for (const [, [address, page, heading]] of ranked.slice(0, 12)) {
    const link = document.createElement("a");
    link.href = `${root}/${address}`;
    link.textContent = heading === page ? page : `${heading} (${page})`;
    found.append(link);
  }
  if (!ranked.length) found.textContent = "Nothing found.";
}

box.addEventListener("input", show);
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && found.firstElementChild) found.firstElementChild.click();
});
if (location.hash.startsWith("#search=")) {
  box.value = decodeURIComponent(location.hash.slice(8));
  show();
}
