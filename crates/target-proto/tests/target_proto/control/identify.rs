//! Identify: all data structures, their fields, and refusals.

use super::script::{NQN, Script, add, config};
use roadtrain_proto::block_limits::BlockLimits;
use roadtrain_target_proto::{
    ConfigOperation, NamespaceConfig, NamespaceId, SubsystemConfig, TargetConfig,
};
use roadtrain_wire::fabrics::{DISCOVERY_NQN, parse_nqn};
use roadtrain_wire::identify::{
    IdentifyCommandSets, IdentifyController, IdentifyControllerNvm, IdentifyNamespace,
    IdentifyNamespaceIndependent, IdentifyNamespaceNvm, NSID_ALL, NamespaceDescriptor,
    NamespaceList, cns, cntrltype, namespace_descriptors, parse_ascii,
};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{SGL_OFFSET, Sqe, opcode};
use roadtrain_wire::status::Status;

fn identify(cns: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
    sqe.cdw10 = u32::from(cns).into();
    sqe.set_transport(4096);
    sqe
}

fn with_csi(cns: u8, nsid: u32, csi: u8) -> Sqe {
    Sqe { cdw11: (u32::from(csi) << 24).into(), ..identify(cns, nsid) }
}

#[test]
fn the_controller_claims_what_is_there() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, identify(cns::CONTROLLER, 0));
    let page: &IdentifyController = answer.page();
    assert_eq!(parse_ascii(&page.mn), "Roadtrain");
    assert_eq!(parse_ascii(&page.sn).len(), 20);
    assert_eq!(parse_ascii(&page.fr), env!("CARGO_PKG_VERSION"));
    assert_eq!(parse_nqn(&page.subnqn), Some(NQN));
    assert_eq!((page.cntlid.get(), page.cntrltype), (cntlid, cntrltype::IO));
    assert_eq!(page.ver.get(), 0x0002_0100);
    assert_eq!((page.cmic, page.mdts), (0b1011, 8));
    assert_eq!((page.oaes.get(), page.ctratt.get()), (0x10_0900, 0x41));
    assert_eq!((page.aerl, page.elpe, page.lpa, page.frmw), (3, 63, 0b10_0110, 3));
    assert_eq!((page.oacs.get(), page.fuses.get(), page.fna, page.sanicap.get()), (0x200, 1, 0, 0));
    assert_eq!((page.kas.get(), page.anacap), (1, 0x1f));
    assert!(page.ciu != 0 && page.cirn.get() != 0 && page.ccrl == 4);
    assert_eq!((page.anagrpmax.get(), page.nanagrpid.get()), (516, 516));
    assert_eq!((page.sqes, page.cqes, page.maxcmd.get()), (0x66, 0x44, 1024));
    assert_eq!((page.nn.get(), page.mnan.get()), (16_384, 16_384));
    assert_eq!((page.oncs.get(), page.vwc, page.sgls.get()), (0b1_1011_1111, 0b111, 0x30_0001));
    assert_eq!((page.cdfs.get(), page.acwu.get(), page.awun.get(), page.awupf.get()), (1, 0, 0, 0));
    assert_eq!((page.ioccsz.get(), page.iorcsz.get()), ((64 + 16384) / 16, 1));
    assert_eq!((page.icdoff.get(), page.fcatt, page.msdbd, page.ofcs.get()), (0, 0, 1, 1));
}

#[test]
fn the_discovery_controller_is_one() {
    let mut script = Script::new();
    let cntlid = script.controller(DISCOVERY_NQN);
    let answer = script.succeed(cntlid, identify(cns::CONTROLLER, 0));
    let page: &IdentifyController = answer.page();
    assert_eq!((page.cntrltype, page.dctype), (cntrltype::DISCOVERY, 1));
    assert_eq!(parse_nqn(&page.subnqn), Some(DISCOVERY_NQN));
    assert_eq!((page.oaes.get(), page.lpa), (1 << 31, 0b100));
    assert_eq!((page.ciu, page.cirn.get(), page.ccrl), (0, 0, 0));
    assert_eq!((page.nn.get(), page.oncs.get(), page.vwc, page.cmic), (0, 0, 0, 0));
    for other in [cns::NAMESPACE, cns::ACTIVE_NAMESPACES, cns::COMMAND_SETS, 0x20] {
        script.fail(cntlid, identify(other, 1), Status::INVALID_FIELD);
    }
}

#[test]
fn namespaces_are_described() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, identify(cns::NAMESPACE, 1));
    let page: &IdentifyNamespace = answer.page();
    assert_eq!((page.nsze.get(), page.ncap.get(), page.nuse.get()), (1 << 20, 1 << 20, 1 << 20));
    assert_eq!((page.block_bytes(), page.nlbaf, page.mc, page.dpc), (Some(512), 0, 0, 0));
    assert_eq!((page.nsfeat, page.nmic, page.dlfeat, page.anagrpid.get()), (0x10, 1, 0b1001, 1));
    assert_eq!((page.npwg.get(), page.npdg.get(), page.nows.get()), (7, 7, 7));
    assert_eq!((page.mssrl.get(), page.mcl.get(), page.msrc), (8192, 32_768, 127));
    assert!(!page.is_read_only() && page.nguid != [0; 16]);

    let answer = script.succeed(cntlid, identify(cns::NAMESPACE, 3));
    let page: &IdentifyNamespace = answer.page();
    assert_eq!((page.nsze.get(), page.block_bytes(), page.dlfeat), (1000, Some(4096), 0b1000));
    assert_eq!(page.npwg.get(), 15);
    assert_eq!((page.mssrl.get(), page.mcl.get(), page.msrc), (1024, 4096, 127));
    assert!(page.is_read_only());
}

#[test]
fn block_limits_of_a_store_are_reported() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let limits = BlockLimits {
        atomic_bytes: 16 << 10,
        write_bytes: 64 << 10,
        optimal_bytes: 192 << 10,
        boundary_bytes: 1 << 20,
        discard_bytes: 256 << 10,
    };
    let namespace = NamespaceConfig { limits, ..NamespaceConfig::new(2, 1000, 12) };
    script.target.apply(&[add(NQN, namespace)]).unwrap();
    let answer = script.succeed(cntlid, identify(cns::NAMESPACE, 2));
    let page: &IdentifyNamespace = answer.page();
    assert_eq!((page.nsfeat, page.nawun.get(), page.nawupf.get()), (0x12, 3, 3));
    assert_eq!((page.nacwu.get(), page.nabsn.get(), page.nabspf.get()), (0, 0, 0));
    assert_eq!((page.npwg.get(), page.npwa.get(), page.nows.get()), (15, 15, 47));
    assert_eq!((page.npdg.get(), page.npda.get(), page.noiob.get()), (63, 63, 256));
}

#[test]
fn namespaces_are_described_independently_of_the_command_set() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, identify(cns::NAMESPACE_INDEPENDENT, 1));
    let page: &IdentifyNamespaceIndependent = answer.page();
    assert_eq!((page.nsfeat, page.nmic, page.nsattr, page.nstat), (0, 1, 0, 1));
    assert_eq!(page.anagrpid.get(), 1);
    let answer = script.succeed(cntlid, identify(cns::NAMESPACE_INDEPENDENT, 3));
    let page: &IdentifyNamespaceIndependent = answer.page();
    assert_eq!((page.nsfeat, page.nsattr, page.nstat), (1 << 5, 1, 1), "no cache, read-only");
}

#[test]
fn inactive_namespaces_are_all_zero_and_invalid_ones_refused() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for cns in [cns::NAMESPACE, cns::NAMESPACE_INDEPENDENT, cns::NAMESPACE_COMMAND_SET] {
        for inactive in [2, 16_384] {
            let answer = script.succeed(cntlid, identify(cns, inactive));
            assert_eq!(answer.data, [0; 4096], "{cns:#x}");
        }
        for invalid in [0, 16_385, 0xffff_fffe, NSID_ALL] {
            script.fail(cntlid, identify(cns, invalid), Status::INVALID_NAMESPACE);
        }
    }
    for nsid in [0, 2, 16_385, NSID_ALL] {
        script.fail(cntlid, identify(cns::NAMESPACE_DESCRIPTORS, nsid), Status::INVALID_NAMESPACE);
    }
}

#[test]
fn lists_hold_the_namespaces_above() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for cns in [cns::ACTIVE_NAMESPACES, cns::ACTIVE_NAMESPACES_COMMAND_SET] {
        for (above, expected) in [(0, &[1, 3][..]), (1, &[3]), (2, &[3]), (3, &[]), (5000, &[])] {
            let answer = script.succeed(cntlid, identify(cns, above));
            assert!(answer.page::<NamespaceList>().iter().eq(expected.iter().copied()));
        }
        for invalid in [0xffff_fffe, NSID_ALL] {
            script.fail(cntlid, identify(cns, invalid), Status::INVALID_NAMESPACE);
        }
    }
}

/// A host that continues after the last entry of each full page finds every namespace once.
#[test]
fn a_list_longer_than_a_page_is_read_in_pages() {
    let few = (1..=1023).collect::<Vec<u32>>();
    let sparse = (1..=5000).map(|n| n * 3 + 1).collect::<Vec<u32>>();
    let all = (1..=16_384).collect::<Vec<u32>>();
    for (nsids, pages) in [(few, 1), ((1..=1024).collect(), 2), (sparse, 5), (all, 17)] {
        let namespaces = nsids.iter().map(|nsid| NamespaceConfig::new(*nsid, 8, 9)).collect();
        let subsystem = SubsystemConfig { namespaces, ..SubsystemConfig::new(NQN) };
        let config = TargetConfig { subsystems: vec![subsystem], ..TargetConfig::default() };
        let mut script = Script::with(&config);
        let cntlid = script.controller(NQN);
        let (mut found, mut reads) = (Vec::new(), 0);
        loop {
            let after = found.last().copied().unwrap_or(0);
            let answer = script.succeed(cntlid, identify(cns::ACTIVE_NAMESPACES, after));
            let page: Vec<u32> = answer.page::<NamespaceList>().iter().collect();
            reads += 1;
            found.extend(&page);
            if page.len() < 1024 {
                break;
            }
        }
        assert!(found == nsids, "{} of {} namespaces", found.len(), nsids.len());
        assert_eq!(reads, pages, "{} namespaces", nsids.len());
    }
}

/// The first page of a list does not say that a namespace of the second is gone: the NSID stays hidden until the host
/// has read that.
#[test]
fn a_page_says_nothing_about_later_ones() {
    let namespaces = (1..=3000).map(|nsid| {
        let id = Some(NamespaceId::of_store(nsid.into()));
        NamespaceConfig { id, ..NamespaceConfig::new(nsid, 8, 9) }
    });
    let namespaces: Vec<_> = namespaces.collect();
    let (early, late) = (namespaces[99].clone(), namespaces[1999].clone());
    let subsystem = SubsystemConfig { namespaces, ..SubsystemConfig::new(NQN) };
    let config = TargetConfig { subsystems: vec![subsystem], ..TargetConfig::default() };
    let mut script = Script::with(&config);
    let cntlid = script.controller(NQN);
    for namespace in [early, late] {
        let nsid = namespace.nsid;
        script.target.apply(&[ConfigOperation::RemoveNamespace { nqn: NQN.into(), nsid }]).unwrap();
        script.target.apply(&[add(NQN, namespace)]).unwrap();
    }
    let has = |script: &mut Script, above: u32, nsid| {
        script.target.handle_timeout(script.now);
        let answer = script.succeed(cntlid, identify(cns::ACTIVE_NAMESPACES, above));
        answer.page::<NamespaceList>().iter().any(|one| one == nsid)
    };
    assert!(!has(&mut script, 0, 100));
    assert!(has(&mut script, 0, 100), "it is back, as the host has read that it was gone");
    assert!(!has(&mut script, 1025, 2000), "the host reads it now");
    assert!(has(&mut script, 1025, 2000));
}

#[test]
fn descriptors_identify_a_namespace_for_good() {
    let descriptors = |nsid| {
        let mut script = Script::new();
        let cntlid = script.controller(NQN);
        let answer = script.succeed(cntlid, identify(cns::NAMESPACE_DESCRIPTORS, nsid));
        namespace_descriptors(&answer.data).collect::<Vec<_>>()
    };
    let first = descriptors(1);
    let [NamespaceDescriptor::Uuid(uuid), NamespaceDescriptor::Nguid(nguid), csi] = first[..]
    else {
        panic!("{first:?}")
    };
    assert_eq!(csi, NamespaceDescriptor::Csi(0));
    assert!(uuid != nguid);
    assert_eq!(descriptors(1), first, "the same in another target");
    assert!(descriptors(3)[..2].iter().all(|other| !first.contains(other)));
}

#[test]
fn limits_of_a_subsystem_are_shown() {
    let mut config = config();
    (config.subsystems[0].dmrsl, config.subsystems[0].wzsl) = (2048, 6);
    let mut script = Script::with(&config);
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, identify(cns::CONTROLLER_COMMAND_SET, 0));
    let page: &IdentifyControllerNvm = answer.page();
    assert_eq!((page.wzsl, page.dmrsl.get()), (6, 2048));
}

#[test]
fn command_set_pages_are_the_nvm_command_sets() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, identify(cns::CONTROLLER_COMMAND_SET, 0));
    let page: &IdentifyControllerNvm = answer.page();
    assert_eq!((page.vsl, page.wzsl, page.dmrl, page.dmsl.get()), (8, 0, 0, 0));
    assert_eq!(page.dmrsl.get(), 0);
    let answer = script.succeed(cntlid, identify(cns::NAMESPACE_COMMAND_SET, 1));
    let page: &IdentifyNamespaceNvm = answer.page();
    assert_eq!((page.lbstm.get(), page.pic, page.elbaf[0].get()), (0, 0, 0));
    let mut sqe = identify(cns::COMMAND_SETS, 0);
    sqe.cdw10 = (0xffff_0000 | u32::from(cns::COMMAND_SETS)).into();
    let answer = script.succeed(cntlid, sqe);
    let vectors = answer.page::<IdentifyCommandSets>().vectors;
    assert!(vectors[0].get() == 1 && vectors[1..].iter().all(|vector| vector.get() == 0));
    for cns in [
        cns::NAMESPACE_COMMAND_SET,
        cns::CONTROLLER_COMMAND_SET,
        cns::ACTIVE_NAMESPACES_COMMAND_SET,
    ] {
        for csi in [1, 2] {
            script.fail(cntlid, with_csi(cns, 1, csi), Status::INVALID_COMMAND_SET);
        }
    }
    // Hosts probe the command sets like this: the error log shows none of it.
    let errors = script.succeed(cntlid, GetLogPage::new(lid::ERROR, 64).emit(NSID_ALL));
    assert!(errors.data.iter().all(|&byte| byte == 0));
}

#[test]
fn command_sets_are_reported_for_this_controller_only() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let of = |cntid: u16| {
        let cdw10 = u32::from(cns::COMMAND_SETS) | u32::from(cntid) << 16;
        Sqe { cdw10: cdw10.into(), ..identify(0, 0) }
    };
    script.succeed(cntlid, of(0xffff));
    script.succeed(cntlid, of(cntlid));
    script.fail(cntlid, of(cntlid + 1), Status::INVALID_FIELD);
    script.fail(cntlid, of(0), Status::INVALID_FIELD);
}

#[test]
fn other_structures_and_wrong_data_pointers_are_refused() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for cns in [0x04, 0x09, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x17, 0x18, 0x1d, 0xff] {
        script.fail(cntlid, identify(cns, 1), Status::INVALID_FIELD);
    }
    for length in [0, 512, 4095, 8192] {
        let mut sqe = identify(cns::CONTROLLER, 0);
        sqe.set_transport(length);
        script.fail(cntlid, sqe, Status::DATA_SGL_LENGTH_INVALID);
    }
    let mut sqe = identify(cns::CONTROLLER, 0);
    sqe.sgl.kind = SGL_OFFSET;
    script.fail(cntlid, sqe, Status::SGL_TYPE_INVALID);
}
