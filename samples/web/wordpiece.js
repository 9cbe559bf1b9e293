// The tokens of BERT: words without accents and capitals, in the longest pieces of a vocabulary.

const LONGEST_WORD = 100;
const SPACES = /[\t\n\r\p{Zs}]+/u;
const REMOVED = /[\p{Mn}\p{Cc}\p{Cf}\p{Co}\u{fffd}]/gu;
// Each is a word of its own: punctuation, what ASCII has of symbols, and ideographs.
const ALONE = /([\p{P}$+<=>^`|~\p{Script=Han}])/gu;

export class WordPiece {
  #pieces;

  /** `vocabulary` has a piece a line; its number is that of the line. */
  constructor(vocabulary) {
    this.#pieces = new Map(vocabulary.trimEnd().split("\n").map((piece, id) => [piece.trim(), id]));
  }

  /** The numbers of a text's tokens, between those of its begin and end; at most `limit`. */
  encode(text, limit = 256) {
    const plain = text.replace(/[\t\n\r]/g, " ").normalize("NFD").replace(REMOVED, "");
    const small = Array.from(plain, (letter) => letter.toLowerCase()).join(""); // as Σ in a word's end
    const words = small.replace(ALONE, " $1 ").split(SPACES).filter(Boolean);
    const ids = words.flatMap((word) => this.#split(word)).slice(0, limit - 2);
    return [this.#pieces.get("[CLS]"), ...ids, this.#pieces.get("[SEP]")];
  }

  #split(word) {
    const letters = Array.from(word);
    const ids = [];
    for (let start = 0; start < letters.length; ) {
      let end = letters.length;
      const pieceAt = () => (start ? "##" : "") + letters.slice(start, end).join("");
      while (end > start && !this.#pieces.has(pieceAt())) --end;
      if (end === start || letters.length > LONGEST_WORD) return [this.#pieces.get("[UNK]")];
      ids.push(this.#pieces.get(pieceAt()));
      start = end;
    }
    return ids;
  }
}
