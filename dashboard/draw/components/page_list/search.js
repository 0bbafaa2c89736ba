// The search over all that the lab has: words in any order, ranked by how many are in the title, in other names, in the text.

import { HITS } from "./hits.js";

const EMPTY = new Set(("a an and are as at be by can do doe does exactly for from how i in is it its me my of on or our show that the " +
  "their there they this to was we what when where which who why will with you your").split(" "));
const ENDINGS = /(?<=.{3})(?:ing|ed|es|s|e)$/;
const TITLE = 4, PAGE = 3, LINE = 2, TEXT = 1; // what a word counts by where it stands; PAGE: other words of a page
const FEWEST = 0.4; // of the best hit's points: what has less is not shown
const CLAIM = 0.8; // what a claim's points count
const TERM = "term, seen on "; // before the title of its page

/** A word without its usual ending. @param {string} word */
export function stem(word) {
  if (/(?:[isu]|ia)s$/.test(word) || word.length < 4) return word;
  return word.replace(/ies$/, "y").replace(ENDINGS, "").replace(/([bdgmnprt])\1$/, "$1");
}

/** The words of a text, stemmed. @param {string} text */
export function wordsOf(text) {
  const plain = text.toLowerCase().normalize("NFKD").replace(/\p{M}/gu, "").replace(/√/g, " sqrt ");
  return (plain.match(/[\p{L}\p{N}]+/gu) ?? []).map(stem);
}

/** Whether one letter is missing, added, wrong or, with its neighbour, swapped. @param {string} one @param {string} other */
function near(one, other) {
  const long = Math.max(one.length, other.length);
  if (long < 6 || Math.abs(one.length - other.length) > 1) return false;
  let start = 0, end = 0;
  while (start < long && one[start] === other[start]) start += 1;
  while (end < long - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const swapped = one.length === other.length && one[start] === other[start + 1] && one[start + 1] === other[start];
  return start + end >= long - 1 || (swapped && start + end === long - 2);
}

/** How well a typed word fits one of the lab: 1 the same, less where it begins it or has a letter wrong; 0 not at all. */
function fit(typed, word) {
  if (typed === word) return 1;
  if (typed.length > 1 && word.startsWith(typed)) return 0.7;
  if (word.length > 4 && typed.startsWith(word)) return 0.3; // tokenizer: token
  return near(typed, word) ? 0.5 : 0;
}

/** @type {any[][]} its title, line, other words, page and values */
const ALL = HITS;
const FIELDS = ALL.map(([title, line, words]) => {
  const joined = title.includes("-") ? title.replace(/(\p{L})-(?=\p{L})/gu, "$1") : ""; // multihead
  return [[...wordsOf(title), ...wordsOf(joined)], line.startsWith(TERM) ? [] : wordsOf(line), wordsOf(words)];
});
/** What says something of a name; beside others, "attention" and "the" say nothing: grouped-query attention. @param {string[]} all */
function telling(all) {
  const words = all.filter((word) => word !== "attention" && word !== "the");
  return words.length ? words : all;
}

/** The words of a name. @param {string} text */
function nameOf(text) {
  return telling(wordsOf(text));
}

// The names of each hit: its title, the title without what is in brackets, and that.
const NAMES = ALL.map(([title]) => [title, ...title.split(/[()]/)].map(nameOf).filter((name) => name.length));

/** What fits the typed words best, the best first; a word that few have counts more. @param {string} typed */
export function search(typed, most = 8) {
  const all = wordsOf(typed.replace(/(attention) mechanisms?/gi, "$1")), meant = all.filter((word) => !EMPTY.has(word));
  const words = meant.length ? meant : all;
  const points = ALL.map(() => 0);
  for (const word of words) {
    const fits = FIELDS.map((fields) => fields.map((field) => Math.max(0, ...field.map((other) => fit(word, other)))));
    const rare = Math.log(1 + ALL.length / (1 + fits.filter((each) => Math.max(...each) > 0).length));
    fits.forEach(([title, line, text], at) => {
      const isPage = !Object.keys(ALL[at][4]).length;
      points[at] += rare * Math.max(TITLE * title, LINE * line, (isPage ? PAGE : TEXT) * text);
    });
  }
  // A name as it is typed, or a word of it that is typed as several, comes first: flash attention, FlashAttention.
  const joined = nameOf(typed).join(""), several = all.length > 1 && all.join("");
  const isClaim = (at) => ALL[at][1] === "claim"; // comes after what it is about
  const isExact = (at) => !isClaim(at) && NAMES[at].some((name) => name.join("") === joined || name.includes(several));
  const shares = NAMES.map((names) => words.length / Math.max(words.length, Math.min(...names.map((name) => name.length)))); // a short title is meant
  const weight = (at) => (0.8 + 0.2 * shares[at]) * (isClaim(at) ? CLAIM : 1);
  const ranked = points.map((sum, at) => ({ hit: ALL[at], exact: isExact(at), points: sum * weight(at) }));
  const least = FEWEST * Math.max(...ranked.map((each) => each.points));
  ranked.sort((one, other) => Number(other.exact) - Number(one.exact) || other.points - one.points); // a tie keeps their order: pages, terms, choices
  const hits = ranked.filter((each) => each.exact || (each.points > 0 && each.points >= least)).map((each) => each.hit);
  // The page that shows the term that is typed comes before its definition.
  const same = hits.length && nameOf(hits[0][0]).join() === telling(words).join();
  const page = same && hits[0][1].startsWith(TERM) && ALL.find((hit) => TERM + hit[0] === hits[0][1]);
  return (page ? [page, ...hits.filter((hit) => hit !== page)] : hits).slice(0, most);
}
