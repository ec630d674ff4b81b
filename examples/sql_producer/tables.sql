-- The producer's side. The producer uses only SQL, and no library of pgsched.
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    cents bigint NOT NULL,
    invoice text,
    ordered_at timestamptz NOT NULL DEFAULT now()
);

-- One run for each order, enqueued in the transaction that inserts the order.
CREATE FUNCTION order_invoice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pgsched.enqueue('invoices.write', jsonb_build_object('order', NEW.id),
                            unique_key => 'invoice ' || NEW.id, max_attempts => 5);
    RETURN NULL;
END $$;
CREATE TRIGGER order_invoice AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_invoice();

-- A job is a row. This job needs only SQL: also its work is a statement.
INSERT INTO pgsched.jobs (name, schedule, kind, task)
VALUES ('forget old orders', '@every 1h', 'sql', 'DELETE FROM orders WHERE ordered_at < now() - interval ''1 year''');
