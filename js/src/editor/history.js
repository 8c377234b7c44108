// Undo and redo over whole documents: they are small, and values.

export class History {
  undoable = [];
  redoable = [];

  constructor(present) { this.present = present; }

  record(next) {
    this.undoable.push(this.present);
    this.redoable = [];
    this.present = next;
  }

  /** The document to show again, or null when there is nothing to undo. */
  undo() { return this.travel(this.undoable, this.redoable); }
  redo() { return this.travel(this.redoable, this.undoable); }

  travel(from, to) {
    if (!from.length) return null;
    to.push(this.present);
    this.present = from.pop();
    return this.present;
  }
}
