const std = @import("std");
const manifest = @import("build.zig.zon");
const Compile = std.Build.Step.Compile;

/// Every C file of ours is compiled with these: C23 and one GNU extension, cleanup. Warnings are
/// errors.
const c_flags = [_][]const u8{
    "-std=c23",                "-D_GNU_SOURCE",            "-Wall",
    "-Wextra",                 "-Wshadow",                 "-Wvla",
    "-Wstrict-prototypes",     "-Wmissing-prototypes",     "-Wwrite-strings",
    "-Wcast-qual",             "-Wformat=2",               "-Wundef",
    "-Wimplicit-fallthrough",  "-Wconversion",             "-Wno-sign-conversion",
    "-fno-omit-frame-pointer", "-fstack-protector-strong", "-fvisibility=hidden",
    "-Werror",
};

/// The source lists are written out: a file that is not named here is not built.
const runtime_files = [_][]const u8{
    "arena.c", "base.c", "batch.c", "buf.c", "clock.c", "config.c", "content.c", "db.c", "err.c", "file.c", "id.c", "input.c", "json.c", "json_canon.c",
    "json_number.c", "json_scan.c", "key.c", "lineage.c", "listen.c", "log.c", "metrics.c", "monitor.c",
    "pgdial.c", "pgfail.c", "pgvalue.c", "random.c", "resolve.c", "rfc3339.c", "schema.c",
    "schema_check.c", "schema_pattern.c",
    "sql_text.c", "sqlphase.c", "stop_signals.c", "store.c", "store_api.c", "store_artifact.c", "store_worker.c",
    "task.c", "template.c", "tool.c", "tool_check.c", "tool_effect.c", "tool_http.c", "tool_input.c",
    "tool_parse.c", "tool_phase.c", "tool_plain.c", "trace.c", "uri_template.c", "value.c",
};
/// The program itself: the only files that see both api/ and worker/.
const program_files = [_][]const u8{
    "bench_caller.c", "bench_child.c", "bench_cluster.c", "bench_crew.c", "bench_drain.c",
    "bench_floor.c", "bench_floor_run.c", "bench_front.c", "bench_load.c", "bench_request.c",
    "bench_run.c",   "bench_server.c", "bench_wal.c", "bench_work.c", "cmd_bench.c",
    "main.c",        "cmd_api.c",    "cmd_call.c",    "cmd_maintain.c", "cmd_migrate.c", "cmd_settle.c", "cmd_operate.c", "cmd_restored.c",
    "cmd_step.c",    "cmd_task.c",    "cmd_tools.c",  "cmd_updown.c",  "cmd_version.c",  "cmd_worker.c",
    "call_show.c", "command.c", "help.c", "maintain.c",   "mcp_client.c",  "migrations.c", "pack.c", "pack_apply.c", "pack_prompt.c", "pack_resource.c",   "pgrun.c",     "task_find.c", "task_story.c", "task_why.c", "operate.c",
    "terminal.c",    "tool_apply.c", "tool_folder.c",
};
const api_files = [_][]const u8{
    "answer.c", "artifacts.c", "auth.c", "call.c", "call_trace.c", "catalog.c", "companion.c", "contents.c",
    "completion.c", "conn.c", "cursor.c", "discover.c", "effect_id.c", "headers.c", "health.c",
    "http.c", "http_text.c", "http_write.c", "intent_window.c", "ladder.c", "list.c",
    "listener.c", "mcp.c", "packs.c", "param_headers.c", "plain.c", "plain_tool.c",
    "presence.c", "prompts.c", "refresh.c", "request.c", "request_state.c", "resources.c", "rounds.c", "serve.c",
    "result.c",    "rpc.c",      "sse.c",      "tasks.c",   "tools.c",     "watch.c",
    "follow.c",    "listen.c",   "subscription.c",
};
const worker_files = [_][]const u8{
    "ask.c",        "beat.c",       "breaker.c",    "curl_loop.c", "downstream.c", "egress.c", "frame.c",         "host.c", "host_pool.c", "http_request.c", "keeper.c", "last_words.c", "phase_http.c",
    "phase_program.c", "phase_sql.c", "phase_wait.c", "plain.c", "program_talk.c", "remote.c", "retry.c",  "run.c", "run_apart.c", "run_keep.c",
    "run_outcome.c", "run_phase.c", "run_report.c", "run_sent.c", "run_undo.c", "run_write.c",     "rundir.c",    "say.c",       "span.c",      "spawn.c",
    "stream.c", "tail.c",       "text.c",       "texts.c", "transfer.c", "unpack.c",     "versions.c",      "worker.c",
};
const runtime_tests = [_][]const u8{
    "test_config.c", "test_content.c", "test_id.c", "test_input.c", "test_json.c", "test_key.c",
    "test_lineage.c", "test_log.c", "test_metrics.c", "test_pgfail.c", "test_rfc3339.c", "test_schema.c",
    "test_sql_text.c", "test_template.c", "test_tool.c", "test_tool_plain.c", "test_trace.c",
    "test_uri_template.c", "test_value.c",
};
/// Of program files that stand alone; their sources ride along.
const program_tests = [_][]const u8{ "test_operate.c", "test_pack.c", "test_terminal.c", "test_tool_folder.c" };
const program_tested = [_][]const u8{ "operate.c", "pack.c", "pack_prompt.c", "pack_resource.c", "terminal.c", "tool_folder.c" };
const api_tests = [_][]const u8{
    "test_auth.c", "test_catalog.c", "test_conn.c", "test_cursor.c", "test_effect_id.c",
    "test_http.c", "test_mcp.c", "test_packs.c", "test_param_headers.c", "test_plain.c",
    "test_request_state.c", "test_rpc.c", "test_subscription.c",
};
const worker_tests = [_][]const u8{
    "test_breaker.c", "test_downstream.c", "test_egress.c", "test_frame.c", "run_rig.c", "test_retry.c", "test_run.c", "test_run_unsafe.c",
    "test_text.c",       "test_unpack.c",
};
/// Each with a run of its own pretending, so each a program.
const worker_program_tests = [_][]const u8{ "program_tools.c", "test_program.c" };
const worker_wait_tests = [_][]const u8{"test_wait.c"};

/// The inner harness compiles these decision files themselves, and stands in for all others.
const sim_runtime = [_][]const u8{
    "arena.c", "base.c", "buf.c", "err.c", "id.c", "input.c", "json.c", "json_canon.c", "json_number.c", "json_scan.c",
    "key.c", "rfc3339.c", "schema.c", "schema_check.c", "schema_pattern.c", "task.c", "template.c", "tool.c",
    "tool_check.c", "tool_effect.c", "tool_http.c", "tool_input.c", "tool_parse.c", "tool_phase.c", "tool_plain.c", "trace.c",
    "content.c", "sql_text.c", "stop_signals.c", "uri_template.c", "value.c",
};
const sim_worker = [_][]const u8{
    "ask.c", "beat.c", "frame.c", "http_request.c", "last_words.c", "phase_http.c", "phase_program.c", "phase_sql.c", "phase_wait.c", "program_talk.c", "retry.c",
    "run.c", "run_apart.c", "run_keep.c", "run_outcome.c", "run_phase.c", "run_report.c", "run_sent.c", "run_undo.c", "run_write.c", "say.c", "span.c", "text.c", "texts.c",
    "worker.c",
};
const sim_api = [_][]const u8{ "answer.c", "plain.c", "presence.c", "result.c", "watch.c" };
const sim_files = [_][]const u8{
    "acts_api.c", "acts_worker.c", "check.c", "clients.c", "dice.c", "downstream_sim.c", "fake_ev.c", "fake_store.c",
    "fibre.c", "front.c", "ledger.c", "main.c", "operator.c", "process.c", "program_sim.c", "scheduler.c", "seen.c",
    "services.c", "sql_sim.c", "tally.c", "tools_sim.c", "world.c",
};
/// What is simulated is what is built: a file that the binary does not have cannot be in the list.
fn subset(comptime part: []const []const u8, comptime whole: []const []const u8) void {
    @setEvalBranchQuota(100_000);
    for (part) |name| {
        for (whole) |other| {
            if (std.mem.eql(u8, name, other)) break;
        } else @compileError(name ++ " is not in the binary");
    }
}
comptime {
    subset(&sim_runtime, &runtime_files);
    subset(&sim_worker, &worker_files);
    subset(&sim_api, &api_files);
}
/// The store in memory, and what holds it against Postgres.
const model_files = [_][]const u8{
    "model.c", "model_accept.c", "model_input.c", "model_maintain.c", "model_operate.c", "model_work.c",
};
const differential_files = [_][]const u8{
    "differential.c", "differential_api.c", "differential_chance.c", "differential_keep.c", "differential_rows.c", "differential_work.c",
};

const runtime_systems = [_][]const u8{ "libpq", "ev", "msgpack", "libcrypto", "libpcre2-8" };
const worker_systems = [_][]const u8{"libcurl"};

/// Bugs that -Dplant=NAME builds in, and the file that sees -DPLANT_NAME; any other name is one of
/// sql/plants/NAME.sql, which the migrations then carry behind the functions.
const planted_files = [_][2][]const u8{
    .{ "key_with_attempt", "worker/run_phase.c" },
    .{ "unknown_as_failed", "worker/run_report.c" },
};
const planted_sql_file = "runtime/migrations.c";

const Sanitize = enum { none, undefined, thread, address };

pub fn build(b: *std.Build) void {
    // Without a default CPU, Zig compiles for the machine it stands on.
    const target = b.standardTargetOptions(.{ .default_target = .{ .cpu_model = .baseline } });
    const optimize = b.standardOptimizeOption(.{});
    const sanitize = b.option(Sanitize, "sanitize", "Checks to compile in (debug: undefined)") orelse
        if (optimize == .debug) Sanitize.undefined else Sanitize.none;
    const p: Project = .{
        .b = b,
        .target = target,
        .optimize = optimize,
        .sanitize = sanitize,
        .plant = b.option([]const u8, "plant", "A bug to build in, for test/chaos/planted"),
        .included = included(b),
        // Zig carries the run-times of TSan and UBSan, not of ASan; GCC's has the same interface.
        .asan = if (sanitize == .address) gccFile(b, "libasan.so") else null,
    };

    // Libraries, lowest first: a folder may include only what stands before it.
    const runtime = p.library("runtime", &runtime_files, &runtime_systems);
    const api = p.library("api", &api_files, &.{"ev"});
    const llhttp = p.llhttp();
    api.root_module.linkLibrary(llhttp);
    const worker = p.library("worker", &worker_files, &worker_systems);

    // zig build: the one binary, the tool SDK and the example tools.
    const holdfast = p.program("holdfast", "runtime", &program_files, &.{ api, worker, runtime });
    holdfast.root_module.linkSystemLibrary("libcurl", .{});
    b.installArtifact(holdfast);
    const man = b.addRunArtifact(holdfast);
    man.addArgs(&.{ "help", "--man" });
    b.getInstallStep().dependOn(&b.addInstallFile(man.captureStdOut(.{}), "share/man/man1/holdfast.1").step);
    const sdk = p.library("holdfast_tool", &.{}, &.{"msgpack"});
    p.sources(sdk.root_module, "worker/sdk/c", &.{ "read.c", "tool.c" });
    sdk.installHeader(b.path("worker/sdk/c/tool.h"), "holdfast/tool.h");
    b.installArtifact(sdk);
    p.example(sdk, "build_report", "render", "render.c", &.{ "cairo", "m" });
    p.example(sdk, "rig_report", "rig", "../rig/rig.c", &.{ "libcurl", "libcjson" });
    p.example(sdk, "rig_other", "rig", "../rig/rig.c", &.{ "libcurl", "libcjson" });
    p.scripts("shell_report");
    p.scripts("python_report");
    b.installDirectory(.{ .source_dir = b.path("deploy/examples/downstream"), .install_dir = .prefix, .install_subdir = "share/holdfast/examples/downstream" });

    // zig build run -- api
    const run = b.addRunArtifact(holdfast);
    run.addPassthruArgs();
    b.step("run", "Run holdfast").dependOn(&run.step);

    // zig build test -- --filter 'json/*'
    const tests = b.step("test", "Run the unit tests");
    _ = p.suite(tests, "runtime", "runtime", &runtime_tests, &.{runtime});
    const program = p.suite(tests, "program", "runtime", &program_tests, &.{runtime});
    program.root_module.addCSourceFiles(.{ .root = b.path("runtime"), .files = &program_tested, .flags = p.flags() });
    _ = p.suite(tests, "api", "api", &api_tests, &.{ api, runtime });
    _ = p.suite(tests, "worker", "worker", &worker_tests, &.{ worker, runtime });
    _ = p.suite(tests, "worker_program", "worker", &worker_program_tests, &.{ worker, runtime, sdk });
    _ = p.suite(tests, "worker_wait", "worker", &worker_wait_tests, &.{ worker, runtime });

    // zig build sim: the inner harness, a million tasks; `zig build sim-bin` only builds it, as
    // zig-out/test/sim.
    const sim = p.simulator();
    const sim_run = b.addSystemCommand(&.{ "/usr/bin/python3", "test/sim/ci" });
    sim_run.addArtifactArg(sim);
    sim_run.addArtifactArg(holdfast);
    sim_run.has_side_effects = true;
    b.step("sim", "Run the inner harness").dependOn(&sim_run.step);
    const sim_install = b.addInstallArtifact(sim, .{ .dest_dir = .{ .override = .{ .custom = "test" } } });
    b.step("sim-bin", "Build the inner harness").dependOn(&sim_install.step);

    // zig build differential: the store in memory against Postgres, as zig-out/test/differential.
    const differential = p.program("differential", "test/sim", &(model_files ++ differential_files), &.{runtime});
    if (sanitize == .address) differential.root_module.addCSourceFile(.{ .file = b.path("test/leave.c"), .flags = p.flags() });
    const differential_install = b.addInstallArtifact(differential, .{ .dest_dir = .{ .override = .{ .custom = "test" } } });
    b.step("differential", "Build test/sim's differential run").dependOn(&differential_install.step);

    // zig build cdb: compile_commands.json for clangd and clang-tidy.
    const cdb = b.addUpdateSourceFiles();
    cdb.addBytesToSource(p.compileCommands(&.{
        .{ "runtime", &runtime_files },    .{ "runtime", &program_files },
        .{ "api", &api_files },            .{ "worker", &worker_files },
        .{ "test/runtime", &runtime_tests }, .{ "test/runtime", &program_tests },
        .{ "test/api", &api_tests },       .{ "test/worker", &worker_tests },
        .{ "test/worker", &worker_program_tests }, .{ "test/worker", &worker_wait_tests },
        .{ "test/sim", &sim_files },
        .{ "test/sim", &model_files },     .{ "test/sim", &differential_files },
    }), "compile_commands.json");
    b.step("cdb", "Write compile_commands.json").dependOn(&cdb.step);
}

/// An empty C file in a folder named by the content of all that a C file of ours may include or
/// embed. Zig keeps, for a binary, what the objects made in its last build have read, and forgets it
/// of those taken from the cache: after the second build it would miss a change of their headers.
/// With this file in it every binary asks each object again, and that is known right.
fn included(b: *std.Build) std.Build.LazyPath {
    const read = b.addWriteFiles();
    for ([_][]const u8{ "runtime", "api", "worker", "sql", "test", "deploy" }) |folder| {
        _ = read.addCopyDirectory(b.path(folder), folder, .{ .include_extensions = &.{ ".h", ".def", ".sql" } });
    }
    return read.add("included.c", "");
}

/// Asked at configure time; the answer stays in the cached configuration until build.zig changes.
fn gccFile(b: *std.Build, name: []const u8) std.Build.LazyPath {
    const path = b.run(&.{ "gcc", b.fmt("-print-file-name={s}", .{name}) });
    return .{ .cwd_relative = std.mem.trim(u8, path, "\n") };
}

const Project = struct {
    b: *std.Build,
    target: std.Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    sanitize: Sanitize,
    asan: ?std.Build.LazyPath,
    plant: ?[]const u8,
    included: std.Build.LazyPath,

    /// The C files of a folder; the one that holds the plant alone sees its define.
    fn sources(p: Project, m: *std.Build.Module, folder: []const u8, files: []const []const u8) void {
        const b = p.b;
        var sound: std.ArrayList([]const u8) = .empty;
        for (files) |file| {
            const define = p.plantDefine(b.fmt("{s}/{s}", .{ folder, file }));
            if (define.len == 0) {
                sound.append(b.graph.arena, file) catch @panic("OOM");
                continue;
            }
            m.addCSourceFile(.{
                .file = b.path(b.fmt("{s}/{s}", .{ folder, file })),
                .flags = std.mem.concat(b.graph.arena, []const u8, &.{ p.flags(), &.{define} }) catch @panic("OOM"),
            });
        }
        if (sound.items.len > 0)
            m.addCSourceFiles(.{ .root = b.path(folder), .files = sound.items, .flags = p.flags() });
    }

    /// Empty for a file that the plant is not in.
    fn plantDefine(p: Project, path: []const u8) []const u8 {
        const plant = p.plant orelse return "";
        for (planted_files) |planted| if (std.mem.eql(u8, planted[0], plant))
            return if (std.mem.eql(u8, planted[1], path)) p.b.fmt("-DPLANT_{s}", .{plant}) else "";
        if (!std.mem.eql(u8, path, planted_sql_file)) return "";
        return p.b.fmt("-DPLANT_SQL=\"sql/plants/{s}.sql\"", .{plant});
    }

    fn flags(p: Project) []const []const u8 {
        return std.mem.concat(p.b.graph.arena, []const u8, &.{
            &c_flags,
            if (p.sanitize == .address) &.{"-fsanitize=address"} else &.{},
        }) catch @panic("OOM");
    }

    /// An empty C module. The root of #include and #embed is the repository, so both name the folder.
    fn module(p: Project) *std.Build.Module {
        const m = p.b.createModule(.{
            .target = p.target,
            .optimize = p.optimize,
            .link_libc = true,
            .sanitize_c = if (p.sanitize == .undefined) .full else .off,
            .sanitize_thread = p.sanitize == .thread,
        });
        m.addCMacro("HF_VERSION", "\"" ++ manifest.version ++ "\"");
        m.addIncludePath(p.b.path("."));
        m.addEmbedPath(p.b.path("."));
        // llhttp's header has no .pc file.
        m.addSystemIncludePath(.{ .cwd_relative = "/usr/share/include" });
        if (p.asan) |file| m.addObjectFile(file);
        m.addCSourceFile(.{ .file = p.included });
        return m;
    }

    /// One static library for each folder.
    fn library(p: Project, folder: []const u8, files: []const []const u8, systems: []const []const u8) *Compile {
        const lib = p.b.addLibrary(.{ .name = folder, .linkage = .static, .root_module = p.module() });
        p.sources(lib.root_module, folder, files);
        for (systems) |name| lib.root_module.linkSystemLibrary(name, .{});
        return lib;
    }

    /// Debian ships llhttp as the C that its authors generate; strict, and with its own warnings off.
    fn llhttp(p: Project) *Compile {
        const lib = p.b.addLibrary(.{ .name = "llhttp", .linkage = .static, .root_module = p.module() });
        for ([_][]const u8{ "llhttp.c", "api.c", "http.c" }) |name| lib.root_module.addCSourceFile(.{
            .file = .{ .cwd_relative = p.b.fmt("/usr/share/llhttp/{s}", .{name}) },
            .flags = &.{ "-w", "-DLLHTTP_STRICT_MODE=1", "-I/usr/share/include/llhttp", "-fno-sanitize=undefined" },
        });
        return lib;
    }

    fn program(p: Project, name: []const u8, folder: []const u8, files: []const []const u8, libraries: []const *Compile) *Compile {
        const exe = p.b.addExecutable(.{ .name = name, .root_module = p.module() });
        exe.pie = true;
        p.sources(exe.root_module, folder, files);
        for (libraries) |lib| exe.root_module.linkLibrary(lib);
        return exe;
    }

    /// A tool folder as `holdfast tools apply` takes it: its files and its built program.
    fn example(p: Project, sdk: *Compile, name: []const u8, program_name: []const u8, file: []const u8, systems: []const []const u8) void {
        const b = p.b;
        const source = b.fmt("deploy/examples/{s}", .{name});
        const folder = b.fmt("share/holdfast/examples/{s}", .{name});
        p.scripts(name);
        const exe = p.program(program_name, source, &.{file}, &.{sdk});
        for (systems) |system| exe.root_module.linkSystemLibrary(system, .{});
        b.getInstallStep().dependOn(&b.addInstallArtifact(exe, .{
            .dest_dir = .{ .override = .{ .custom = folder } },
        }).step);
    }

    /// A tool folder whose programs, if it has any, need no building.
    fn scripts(p: Project, name: []const u8) void {
        const b = p.b;
        b.installDirectory(.{
            .source_dir = b.path(b.fmt("deploy/examples/{s}", .{name})),
            .install_dir = .prefix,
            .install_subdir = b.fmt("share/holdfast/examples/{s}", .{name}),
            .exclude_extensions = &.{ ".c", ".md" },
        });
    }

    /// A Criterion binary that links no more than its folder may know.
    fn suite(p: Project, tests: *std.Build.Step, name: []const u8, folder: []const u8, files: []const []const u8, libraries: []const *Compile) *Compile {
        const exe = p.program(p.b.fmt("unit-{s}", .{name}), p.b.fmt("test/{s}", .{folder}), files, libraries);
        exe.root_module.linkSystemLibrary("criterion", .{});
        if (p.sanitize == .address) exe.root_module.addCSourceFile(.{ .file = p.b.path("test/leave.c"), .flags = p.flags() });
        const run = p.b.addRunArtifact(exe);
        run.addPassthruArgs();
        run.has_side_effects = true;
        tests.dependOn(&run.step);
        return exe;
    }

    fn simulator(p: Project) *Compile {
        const exe = p.b.addExecutable(.{ .name = "sim", .root_module = p.module() });
        exe.pie = true;
        p.sources(exe.root_module, "runtime", &sim_runtime);
        p.sources(exe.root_module, "worker", &sim_worker);
        p.sources(exe.root_module, "api", &sim_api);
        p.sources(exe.root_module, "test/sim", &(model_files ++ sim_files));
        for ([_][]const u8{ "msgpack", "libcrypto", "libpcre2-8" }) |name| exe.root_module.linkSystemLibrary(name, .{});
        return exe;
    }

    fn compileCommands(p: Project, folders: []const struct { []const u8, []const []const u8 }) []const u8 {
        var lines: std.ArrayList([]const u8) = .empty;
        for (folders) |folder| for (folder[1]) |file| {
            lines.append(p.b.graph.arena, p.b.fmt(
                \\{{"directory":"{3s}","file":"{0s}/{1s}","command":"clang {2s} -DHF_VERSION=\\\"dev\\\" --embed-dir=. -I. -I/usr/include/postgresql -I/usr/include/cjson -I/usr/share/include -c {0s}/{1s}"}}
            , .{ folder[0], file, std.mem.join(p.b.graph.arena, " ", p.flags()) catch @panic("OOM"), p.b.root.root_dir.path orelse p.b.graph.environ_map.get("PWD").? })) catch @panic("OOM");
        };
        return p.b.fmt("[\n{s}\n]\n", .{std.mem.join(p.b.graph.arena, ",\n", lines.items) catch @panic("OOM")});
    }
};
