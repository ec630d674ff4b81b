"""The worker's side: a task that writes invoices. It does not depend on the program that enqueues its runs."""

from pgsched import App, Run

app = App("invoices")


@app.task(name="invoices.write")
def write(run: Run, order: int) -> str:
    """Write the invoice into the order's row. The row and the success of the run are one commit."""
    with run.transaction() as connection:
        customer, cents = connection.execute("SELECT customer, cents FROM orders WHERE id = %s", [order]).fetchone()
        invoice = f"{customer} owes {cents / 100:.2f}"
        connection.execute("UPDATE orders SET invoice = %s WHERE id = %s", [invoice, order])
    return invoice
