-- What the chaos harness watches the store with: triggers of its own on the tables of a test
-- database, in a schema of its own. They see each write at the moment it is made, whoever makes it,
-- and note what no invariant allows in chaos.finding. A finding of a transaction that is rolled
-- back goes with it, as the write had no effect.

CREATE SCHEMA chaos;
CREATE TABLE chaos.finding (
    at timestamptz NOT NULL DEFAULT clock_timestamp(), rule text NOT NULL, task bytea, detail text);
-- Which process an incarnation belongs to: its connection string names it.
CREATE TABLE chaos.incarnation (
    incarnation uuid PRIMARY KEY, process text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());

CREATE FUNCTION chaos.note(rule text, task bytea, detail text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = chaos AS $$
    INSERT INTO chaos.finding (rule, task, detail) VALUES (rule, task, detail)
$$;

CREATE FUNCTION chaos.on_worker() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = chaos AS $$
BEGIN
    INSERT INTO chaos.incarnation (incarnation, process)
    VALUES (NEW.incarnation, current_setting('application_name')) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER chaos AFTER INSERT ON holdfast.worker
    FOR EACH ROW EXECUTE FUNCTION chaos.on_worker();

-- When a task ended, for what is asked after its retention.
CREATE TABLE chaos.ended (task bytea NOT NULL, at timestamptz NOT NULL);

-- Each crash that a task was counted.
CREATE TABLE chaos.crash (task bytea NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());

-- V7: what is unknown stays so until a person settles it, in the same commit.
CREATE FUNCTION chaos.settled(of_task bytea) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = chaos AS $$
    SELECT EXISTS (SELECT FROM holdfast.audit a
                   WHERE a.task = of_task AND a.act LIKE 'settle %'
                     AND a.xmin = pg_current_xact_id()::xid)
$$;

-- V4: a step is written only under the claim that holds. V3, V6: never written again.
CREATE FUNCTION chaos.on_step() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = chaos AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        PERFORM chaos.note('V3', NEW.task, format('step %s was rewritten', NEW.place));
    ELSIF NEW.token IS NOT NULL AND NOT EXISTS (
        SELECT FROM holdfast.work w WHERE w.task = NEW.task AND w.token = NEW.token) THEN
        PERFORM chaos.note('V4', NEW.task,
                           format('step %s (%s) came under a stale claim', NEW.place, NEW.name));
    END IF;
    IF NEW.token IS NULL AND EXISTS (
        SELECT FROM holdfast.work w JOIN holdfast.worker k USING (incarnation)
        WHERE w.task = NEW.task) THEN
        PERFORM chaos.note('V4', NEW.task, format('ended as %s while a worker held it', NEW.name));
    END IF;
    IF TG_OP = 'INSERT' AND NEW.place = 2147483647 THEN
        INSERT INTO chaos.ended (task, at) VALUES (NEW.task, NEW.at);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER chaos BEFORE INSERT OR UPDATE ON holdfast.step
    FOR EACH ROW EXECUTE FUNCTION chaos.on_step();

-- V6: what is over is not to be run any more, from that commit on.
CREATE FUNCTION chaos.on_outcome() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = chaos AS $$
BEGIN
    IF EXISTS (SELECT FROM holdfast.work w WHERE w.task = NEW.task) THEN
        PERFORM chaos.note('V6', NEW.task, format('%s, and still to be run', NEW.name));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER chaos_outcome AFTER INSERT ON holdfast.step
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.place = 2147483647)
    EXECUTE FUNCTION chaos.on_outcome();

-- V4: a claim is freed before it is given to another; a task never goes back.
CREATE FUNCTION chaos.on_work() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = chaos AS $$
BEGIN
    IF NEW.phase < OLD.phase THEN
        PERFORM chaos.note('V3', NEW.task,
                           format('back from phase %s to %s', OLD.phase, NEW.phase));
    END IF;
    IF NEW.token <> OLD.token THEN
        PERFORM chaos.note('V4', NEW.task, 'its claim was taken while it was held');
    END IF;
    IF NEW.crashes > OLD.crashes THEN
        INSERT INTO chaos.crash (task) VALUES (NEW.task);
    END IF;
    IF OLD.state = 'unknown' AND NEW.state <> 'unknown' AND NOT chaos.settled(NEW.task) THEN
        PERFORM chaos.note('V7', NEW.task, 'it was unknown, and nobody settled it');
    END IF;
    IF NEW.state = 'parked' AND NEW.held THEN
        PERFORM chaos.note('V9', NEW.task, 'parked, though a task client has its handle');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER chaos BEFORE UPDATE ON holdfast.work
    FOR EACH ROW EXECUTE FUNCTION chaos.on_work();

-- V9: a task leaves the queue with an outcome, in the same commit.
CREATE FUNCTION chaos.on_work_gone() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = chaos AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.step s WHERE s.week = OLD.week AND s.task = OLD.task
                   AND s.place = 2147483647) THEN
        PERFORM chaos.note('V9', OLD.task, 'its work is gone and there is no outcome');
    END IF;
    IF OLD.state = 'unknown' AND NOT chaos.settled(OLD.task) THEN
        PERFORM chaos.note('V7', OLD.task, 'it ended while it was unknown, and nobody settled it');
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER chaos_gone AFTER DELETE ON holdfast.work
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION chaos.on_work_gone();

-- V2, V9: what is removed has ended before.
CREATE FUNCTION chaos.on_task_gone() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = chaos AS $$
BEGIN
    IF EXISTS (SELECT FROM holdfast.work w WHERE w.task = OLD.task) THEN
        PERFORM chaos.note('V9', OLD.task, 'removed while it was still to be run');
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER chaos_gone BEFORE DELETE ON holdfast.task
    FOR EACH ROW EXECUTE FUNCTION chaos.on_task_gone();
