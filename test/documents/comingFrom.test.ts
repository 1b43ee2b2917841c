import assert from "node:assert/strict";
import { test } from "node:test";
import { projectText } from "../support/project.js";

/** What a job or run can have in other schedulers, by the sections of the page: keys, columns and functions. */
const names: Readonly<Record<string, string>> = {
  // pg_cron--1.0.sql to pg_cron--1.5--1.6.sql
  pg_cron: "cron.schedule schedule_in_database unschedule alter_job",
  // pgagent.sql of 4.2
  pgAgent: `pga_jobagent jagpid jaglogintime jagstation pga_jobclass jclid jclname
    pga_job jobid jobjclid jobname jobdesc jobhostagent jobenabled jobcreated jobchanged jobagentid jobnextrun joblastrun
    pga_jobstep jstid jstjobid jstname jstdesc jstenabled jstkind jstcode jstconnstr jstdbname jstonerror jscnextrun
    pga_schedule jscid jscjobid jscname jscdesc jscenabled jscstart jscend jscminutes jschours jscweekdays jscmonthdays
    jscmonths pga_exception jexid jexscid jexdate jextime pga_joblog jlgid jlgjobid jlgstatus jlgstart jlgduration
    pga_jobsteplog jslid jsljlgid jsljstid jslstatus jslresult jslstart jslduration jsloutput`,
  // ddl.sql of 6, and the migrations 00733 and 00798
  pg_timetable: `chain chain_id chain_name run_at max_instances timeout live self_destruct exclusive_execution client_name
    on_error run_at_time_zone task task_id task_order task_name kind command run_as database_connection ignore_error
    autonomous parameter order_id value active_session client_pid server_pid started_at log ts pid log_level message
    message_data execution_log txid last_run finished returncode output params active_chain secret`,
  // The documentation of create_job and submit_job
  pgpro_scheduler: `name node comments cron rule crontab onstart minutes hours days months wdays command commands run_as
    start_date end_date date dates use_same_transaction last_start_available max_run_time max_instances onrollback
    next_time_statement query params run_after max_duration max_wait_interval depends_on resubmit_limit`,
};

for (const [title, list] of Object.entries(names)) {
  test(`everything of ${title} has an answer`, () => {
    const [, section = ""] =
      new RegExp(`^## ${title}\n([^]*?)^## `, "m").exec(projectText("docs/coming-from.md")) ?? [];
    const told = new Set([...section.matchAll(/`([\w.]+)`/g)].map(([, name]) => name));
    assert.deepEqual(
      list.split(/\s+/).filter((name) => !told.has(name)),
      [],
    );
  });
}
