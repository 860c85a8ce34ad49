"""What a running Tiffin reads on invoices whose every letter is known.

    python bench/ocr.py --url http://127.0.0.1:8080 --key sk-… [--count 208] [--at 1] [--out FILE]

Reports the character error rate (edits over letters, of a document's whole text in reading order,
once with spaces and once without them) and the share of fields (number, date, GSTIN, seller, buyer,
total) that stand letter for letter on one line of the answer, by kind of document; seconds a page.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from invoices import Invoice, invoice


def edits(one: str, other: str) -> int:
    """The fewest letters to insert, delete or replace that make one text of the other."""
    a = np.array([ord(letter) for letter in one], np.int64)
    steps = np.arange(len(a) + 1)
    row = steps.copy()
    for count, letter in enumerate(other, 1):
        changed = row[:-1] + (a != ord(letter))
        best = np.minimum(
            np.concatenate([[count], changed]), np.concatenate([[count], row[1:] + 1])
        )
        # Inserting goes along the row: the least so far, and one for each step since.
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])


class Score:
    """Sums over documents of one kind."""

    def __init__(self) -> None:
        self.documents = self.pages = self.letters = self.wrong = 0
        self.dense_letters = self.dense_wrong = self.fields = self.right = 0
        self.dense_right = 0
        self.seconds: list[float] = []

    def add(self, made: Invoice, answer: dict[str, Any], seconds: float) -> None:
        """One document's answer."""
        lines = [line["text"] for page in answer["pages"] for line in page["lines"]]
        read, dense = " ".join(lines), made.text.replace(" ", "")
        self.documents += 1
        self.pages += made.pages
        self.letters += len(made.text)
        self.wrong += edits(made.text, read)
        self.dense_letters += len(dense)
        self.dense_wrong += edits(dense, read.replace(" ", ""))
        for value in made.fields.values():
            self.fields += 1
            self.right += any(value in line for line in lines)
            tight = value.replace(" ", "")
            self.dense_right += any(tight in line.replace(" ", "") for line in lines)
        self.seconds.append(seconds / made.pages)

    def told(self) -> dict[str, Any]:
        """The rates."""
        return {
            "documents": self.documents,
            "pages": self.pages,
            "cer": round(self.wrong / self.letters, 5),
            "cer_without_spaces": round(self.dense_wrong / self.dense_letters, 5),
            "fields": self.fields,
            "fields_right": round(self.right / self.fields, 4),
            "fields_right_but_for_spaces": round(self.dense_right / self.fields, 4),
            "seconds_a_page": round(statistics.median(self.seconds), 2),
        }


def main() -> None:
    """Send them all and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", required=True)
    parser.add_argument("--model", default="ocr")
    parser.add_argument("--count", type=int, default=208)
    parser.add_argument("--at", type=int, default=1, help="documents at once")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worst", type=int, default=0, help="print so many bad documents")
    given = parser.parse_args()
    client = httpx.Client(
        base_url=given.url, headers={"authorization": f"Bearer {given.key}"}, timeout=300
    )

    def read(number: int) -> tuple[Invoice, dict[str, Any], float]:
        made = invoice(number)
        began = time.monotonic()
        reply = client.post(
            f"/v1/documents/{given.model}",
            content=made.content,
            headers={"content-type": made.content_type},
        )
        reply.raise_for_status()
        return made, reply.json(), time.monotonic() - began

    scores: dict[str, Score] = defaultdict(Score)
    began, bad = time.monotonic(), []
    with ThreadPoolExecutor(given.at) as pool:
        for made, answer, seconds in pool.map(read, range(given.count)):
            for name in (made.kind, "all"):
                scores[name].add(made, answer, seconds)
            text = " ".join(line["text"] for page in answer["pages"] for line in page["lines"])
            bad.append((edits(made.text, text), made.kind, made.text, text))
    told = {name: score.told() for name, score in scores.items()}
    told["all"]["pages_a_second"] = round(scores["all"].pages / (time.monotonic() - began), 2)
    print(json.dumps(told, indent=1))
    for wrong, kind, wanted, text in sorted(bad, reverse=True)[: given.worst]:
        print(f"\n{kind}: {wrong}\n{wanted}\n{text}")
    if given.out:
        given.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
