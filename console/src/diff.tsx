// Two texts, line by line: what was removed, what was added, and what stayed.

export interface DiffLine {
  sign: " " | "-" | "+";
  text: string;
}

/** The lines of both texts, with those that both have in common found by their longest common subsequence. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [old, recent] = [before.split("\n"), after.split("\n")];
  // common[i][j]: how many lines the rests from i and j on have in common.
  const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(recent.length + 1));
  const at = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = recent.length - 1; j >= 0; j--)
      common[i]![j] = old[i] === recent[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < recent.length)
    if (i < old.length && j < recent.length && old[i] === recent[j]) {
      lines.push({ sign: " ", text: old[i] ?? "" });
      i++;
      j++;
    } else if (j >= recent.length || (i < old.length && at(i + 1, j) >= at(i, j + 1))) lines.push({ sign: "-", text: old[i++] ?? "" });
    else lines.push({ sign: "+", text: recent[j++] ?? "" });
  return lines;
}

const CLASSES = { " ": "", "-": "removed", "+": "added" };

export const Diff = ({ before, after, label }: { before: string; after: string; label: string }) => (
  <pre class="value diff" tabindex={0} role="region" aria-label={label}>
    {diffLines(before, after).map(({ sign, text }, number) => (
      <span key={number} class={`diff-line ${CLASSES[sign]}`}>
        {`${sign} ${text}\n`}
      </span>
    ))}
  </pre>
);
